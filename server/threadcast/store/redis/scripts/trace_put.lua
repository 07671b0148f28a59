#!lua
-- trace_put: store records of traces with a chat. The oldest records beyond max_count are deleted. All records expire.
-- KEYS meta traces
-- ARGV owner ttl max_count replaced_count replaced_key... record...
--      replaced_key: the keys of the newest records, oldest first; record: begins with its key and a space
-- Repeat: stores the same records again, and readers recognise them by their keys. With replaced keys, a repeat returns
-- MOVED. Returns OK, GONE when the owner has no such chat, or MOVED when the newest records are not those to replace.
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted')
if meta[1] ~= ARGV[1] or meta[2] then return 'GONE' end
local replaced = tonumber(ARGV[4])
if replaced > 0 then
  local newest = redis.call('LRANGE', KEYS[2], -replaced, -1)
  for i = 1, replaced do
    local key = ARGV[4 + i] .. ' '
    if string.sub(newest[i] or '', 1, #key) ~= key then return 'MOVED' end
  end
  redis.call('LTRIM', KEYS[2], 0, -replaced - 1)
end
for i = 5 + replaced, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('LTRIM', KEYS[2], -ARGV[3], -1)
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 'OK'
