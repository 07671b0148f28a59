#!lua
-- claim: take chats of a bucket that are due, by pushing their score one lease into the future. Against double work
-- only; safety comes from the fence.
-- KEYS due own bell
-- ARGV worker limit lease_ms
-- Repeat: other chats or none; those of a lost reply wait one lease. Returns {chat, previous owner or '', ...}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local claimed = {}
for _, chat in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  claimed[#claimed + 1] = chat
  claimed[#claimed + 1] = redis.call('HGET', KEYS[2], chat) or ''
  redis.call('ZADD', KEYS[1], now + ARGV[3], chat)
  redis.call('HSET', KEYS[2], chat, ARGV[1])
end
if redis.call('ZCOUNT', KEYS[1], '-inf', now) > 0 and redis.call('LLEN', KEYS[3]) == 0 then
  redis.call('LPUSH', KEYS[3], 'x')
end
return claimed
