#!lua
-- claim_chat: assign one chat whose run waits for a slot to a worker, before the chat's next check is due.
-- KEYS due own owners meta
-- ARGV chat worker lease_ms
-- Repeat: 0. If the reply is lost, the chat is due again after one lease. Returns 1, or 0 if the chat has an owner or
-- is at rest.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 or not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], 'GT', now + ARGV[3], ARGV[2])
if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('HSET', KEYS[4], 'claimed', ARGV[2]) end
return 1
