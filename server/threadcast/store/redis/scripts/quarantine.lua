#!lua flags=allow-oom
-- quarantine: suspend a chat whose log cannot be folded: no owner, due far in the future, nothing deleted.
-- KEYS own due
-- ARGV chat worker until_ms
-- Repeat: LOST, which then means that it is done. Returns OK or LOST.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 'OK'
