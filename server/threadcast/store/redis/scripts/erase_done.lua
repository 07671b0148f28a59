#!lua flags=allow-oom
-- erase_done: delete the time of the last deletion of a chat, if that deletion was before the rewrite of the store's
-- file.
-- KEYS erased
-- ARGV rewritten_ms     (the store's time when the rewrite began)
-- Repeat: changes nothing. Returns OK.
local last = redis.call('GET', KEYS[1])
if last and tonumber(last) < tonumber(ARGV[1]) then redis.call('DEL', KEYS[1]) end
return 'OK'
