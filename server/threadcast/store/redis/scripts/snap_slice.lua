#!lua flags=no-writes
-- snap_slice: return one slice of a large checkpoint, if the stored checkpoint still begins with this line.
-- KEYS snap slices
-- ARGV line number slice_bytes     (0: read a field of `slices`; else cut the slice from the string `snap`)
-- Repeat: the same answer. Returns the bytes, or nil when the checkpoint was replaced or deleted.
if string.match(redis.call('GETRANGE', KEYS[1], 0, 127), '^[^\n]*') ~= ARGV[1] then return false end
local number, size = tonumber(ARGV[2]), tonumber(ARGV[3])
if size == 0 then return redis.call('HGET', KEYS[2], ARGV[2]) end
return redis.call('GETRANGE', KEYS[1], number * size, (number + 1) * size - 1)
