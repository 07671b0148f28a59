#!lua flags=allow-oom
-- erase_done: forget that chats were deleted, because the store's file was rewritten since. A later deletion is kept.
-- KEYS erased
-- ARGV rewritten_ms     (the store's time when the rewrite began)
-- Repeat: changes nothing. Returns OK.
local last = redis.call('GET', KEYS[1])
if last and tonumber(last) < tonumber(ARGV[1]) then redis.call('DEL', KEYS[1]) end
return 'OK'
