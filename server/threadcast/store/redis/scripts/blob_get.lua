#!lua flags=no-writes
-- blob_get: return one blob, for the chat's owner only.
-- KEYS blobs blob meta
-- ARGV owner
-- Repeat: the same answer. Returns {mime, bytes}, or {} when this owner has no such blob.
local meta = redis.call('HMGET', KEYS[3], 'owner', 'deleted')
if meta[2] or (meta[1] and meta[1] ~= ARGV[1]) or redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return {} end
local found = redis.call('HMGET', KEYS[2], 'm', 'd')
return found[1] and found or {}
