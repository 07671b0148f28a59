#!lua flags=allow-oom
-- blob_drop: delete a blob to which nothing refers, and take it from the account of its owner.
-- KEYS blobs blob account
-- ARGV hash owner chat overhead
-- Repeat: the same, without a second effect. Returns 1 if the blob was deleted, and 0 for a blob that is gone, is kept
-- for as long as its chat, or belongs to another owner.
local size = redis.call('HGET', KEYS[1], ARGV[1])
if not size or redis.call('HGET', KEYS[1], 'owner') ~= ARGV[2] or redis.call('PTTL', KEYS[2]) < 0 then return 0 end
redis.call('UNLINK', KEYS[2])
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) end
local counted = size + ARGV[4]
redis.call('HINCRBY', KEYS[3], '*', -counted)
if redis.call('HINCRBY', KEYS[3], ARGV[3], -counted) == 0 then redis.call('HDEL', KEYS[3], ARGV[3]) end
return 1
