#!lua flags=no-writes
-- check_buckets: return what there is to do in some buckets. On one server, a single call checks all of them.
-- KEYS due owners, for each bucket
-- ARGV none
-- Repeat: the same answer. Returns a character for each bucket: '1' if chats are due, '2' if workers own chats, '3' for
-- both, else '0'.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer = {}
for i = 1, #KEYS, 2 do
  local first = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  local status = first and tonumber(first) <= now and 1 or 0
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then status = status + 2 end
  answer[#answer + 1] = status
end
return table.concat(answer)
