#!lua flags=allow-oom
-- quarantine: suspend a chat whose log cannot be folded: remove its owner, and make it due far in the future; nothing
-- is deleted.
-- KEYS own due
-- ARGV chat worker until_ms
-- Repeat: LOST, which then means that the chat was suspended. Returns OK or LOST.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 'OK'
