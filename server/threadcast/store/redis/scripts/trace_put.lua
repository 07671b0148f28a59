#!lua
-- trace_put: store records of traces with a chat. The oldest records beyond the bound are deleted, and all expire.
-- KEYS meta trace
-- ARGV owner ttl max_count replaced_id-or-'', then run key data of each
-- Repeat: stores the same records again, and readers recognise them by their keys; with a replaced id, MOVED. Returns OK,
-- GONE when the owner has no such chat, or MOVED when the record to replace is gone.
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted')
if meta[1] ~= ARGV[1] or meta[2] then return 'GONE' end
if ARGV[4] ~= '' and redis.call('XDEL', KEYS[2], ARGV[4]) == 0 then return 'MOVED' end
for i = 5, #ARGV, 3 do
  redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], '*', 'o', ARGV[1], 'r', ARGV[i], 'k', ARGV[i + 1], 'd', ARGV[i + 2])
end
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 'OK'
