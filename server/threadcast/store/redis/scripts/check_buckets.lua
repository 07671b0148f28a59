#!lua flags=no-writes
-- check_buckets: return what there is to do in some buckets. On one server, a single call checks all of them.
-- KEYS due owners rests, for each bucket
-- ARGV none
-- Repeat: the same answer. Returns a digit for each bucket, the sum of 1 if chats are due, 2 if workers own chats, and
-- 4 if logs were left uncompacted.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function is_due(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first) <= now
end
local answer = {}
for i = 1, #KEYS - 2, 3 do  -- in a Cluster, one more key follows
  local status = is_due(KEYS[i]) and 1 or 0
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then status = status + 2 end
  if is_due(KEYS[i + 2]) then status = status + 4 end
  answer[#answer + 1] = status
end
return table.concat(answer)
