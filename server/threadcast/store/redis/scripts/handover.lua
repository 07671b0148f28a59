#!lua flags=allow-oom
-- handover: release a chat so that any worker can claim it, at once or after a delay.
-- KEYS own due bell
-- ARGV chat worker delay_ms
-- Repeat: LOST, because the chat was handed over. Returns OK, or LOST if the worker does not own the chat.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
if ARGV[3] == '0' and redis.call('LLEN', KEYS[3]) == 0 then redis.call('LPUSH', KEYS[3], 'x') end
return 'OK'
