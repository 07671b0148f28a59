#!lua
-- left_rests: return released chats whose logs should have been compacted some time ago, and leave them to the caller
-- for a while, so that no other worker compacts them at the same time.
-- KEYS rests
-- ARGV limit again_ms     (again_ms: the time until another worker may get the same chats)
-- Repeat: other chats or none; these chats come again after `again_ms`.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local chats = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, chat in ipairs(chats) do redis.call('ZADD', KEYS[1], now + ARGV[2], chat) end
return chats
