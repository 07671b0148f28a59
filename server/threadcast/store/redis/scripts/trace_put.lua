#!lua
-- trace_put: store records of traces with a chat. The oldest records beyond max_count are deleted. All records expire.
-- KEYS meta traces
-- ARGV owner ttl max_count replaced_key-or-'', then the records, each of which begins with its key and a space
-- Repeat: stores the same records again, and readers recognise them by their keys. With a replaced key, a repeat
-- returns MOVED. Returns OK, GONE when the owner has no such chat, or MOVED when the newest record is not the record to
-- replace.
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted')
if meta[1] ~= ARGV[1] or meta[2] then return 'GONE' end
if ARGV[4] ~= '' then
  local replaced = ARGV[4] .. ' '
  if string.sub(redis.call('LINDEX', KEYS[2], -1) or '', 1, #replaced) ~= replaced then return 'MOVED' end
  redis.call('RPOP', KEYS[2])
end
for i = 5, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('LTRIM', KEYS[2], -ARGV[3], -1)
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 'OK'
