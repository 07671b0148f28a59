#!lua flags=no-writes
-- account: return how many bytes and chats a principal stores in this bucket.
-- KEYS account gone
-- ARGV overhead     (bytes that count for a deleted chat)
-- Repeat: the same answer. Returns {bytes, chats}.
local chats = math.max(redis.call('HLEN', KEYS[1]) - 1, 0)
local bytes = math.max(redis.call('HGET', KEYS[1], '*') or 0, 0)
return {bytes + redis.call('ZCARD', KEYS[2]) * ARGV[1], chats}
