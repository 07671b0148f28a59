#!lua flags=allow-oom
-- quarantine: suspend a chat whose log cannot be folded: remove its owner, and make the chat due far in the future.
-- Nothing is deleted.
-- KEYS own due
-- ARGV chat worker until_ms
-- Repeat: LOST, because the chat was suspended. Returns OK, or LOST if the worker does not own the chat.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 'OK'
