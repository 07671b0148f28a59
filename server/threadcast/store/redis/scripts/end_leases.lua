#!lua flags=allow-oom
-- end_leases: make chats of an owner due at once, if the owner's inbox channel still has no listener. As for
-- `silent_owners`, the calling worker must listen at this server. A call stays short because it reads only some of the
-- bucket's owned chats; the caller continues at the returned cursor.
-- KEYS own due bell judge
-- ARGV worker owner mail_prefix cursor looked_at judge_ms
-- Repeat: the same effect. Returns {count of chats, next cursor or '' at the end}. The first call returns {0, ''} if
-- another worker has begun to end these leases within `judge_ms`.
if redis.call('PUBSUB', 'NUMSUB', ARGV[3] .. ARGV[1])[2] == 0 then return {0, ''} end
if redis.call('PUBSUB', 'NUMSUB', ARGV[3] .. ARGV[2])[2] > 0 then return {0, ''} end
if ARGV[4] == '0' then
  local judge = redis.call('GET', KEYS[4])
  if judge and judge ~= ARGV[1] then return {0, ''} end
  redis.call('SET', KEYS[4], ARGV[1], 'PX', ARGV[6])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local page = redis.call('HSCAN', KEYS[1], ARGV[4], 'COUNT', ARGV[5])
local count = 0
for i = 1, #page[2], 2 do
  if page[2][i + 1] == ARGV[2] then count = count + redis.call('ZADD', KEYS[2], 'LT', 'CH', now, page[2][i]) end
end
if count > 0 and redis.call('LLEN', KEYS[3]) == 0 then redis.call('LPUSH', KEYS[3], 'x') end
return {count, page[1] == '0' and '' or page[1]}
