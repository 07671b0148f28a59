#!lua
-- trace_put: store records of traces with a chat. The oldest records beyond the bound are deleted, and all expire.
-- KEYS meta trace
-- ARGV owner ttl max_count, then run key data of each
-- Repeat: stores the same records again; readers recognise them by their keys. Returns OK, or GONE when the owner has
-- no such chat.
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted')
if meta[1] ~= ARGV[1] or meta[2] then return 'GONE' end
for i = 4, #ARGV, 3 do
  redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], '*', 'o', ARGV[1], 'r', ARGV[i], 'k', ARGV[i + 1], 'd', ARGV[i + 2])
end
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 'OK'
