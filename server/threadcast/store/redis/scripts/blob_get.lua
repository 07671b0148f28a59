#!lua flags=no-writes
-- blob_get: return one blob, for the chat's owner only.
-- KEYS blobs blob meta
-- ARGV owner whole_max_bytes
-- Repeat: the same answer. Returns {mime, bytes, size, 1 if it has slices, else 0}, or {} when this owner has no such
-- blob. If the blob has slices or more than whole_max_bytes, the bytes are '', and the caller reads the blob's fields.
local meta = redis.call('HMGET', KEYS[3], 'owner', 'deleted')
if meta[2] or (meta[1] and meta[1] ~= ARGV[1]) or redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return {} end
local found = redis.call('HMGET', KEYS[2], 'm', 'M', 'n')
if found[2] then return {found[2], '', tonumber(found[3]), 1} end
if not found[1] then return {} end
local size = redis.call('HSTRLEN', KEYS[2], 'd')
return {found[1], size <= tonumber(ARGV[2]) and redis.call('HGET', KEYS[2], 'd') or '', size, 0}
