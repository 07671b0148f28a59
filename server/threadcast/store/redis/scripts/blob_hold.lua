#!lua
-- blob_hold: return which of these blobs the owner's chat has, and extend their expiry, so that a command may refer to
-- them.
-- KEYS blobs meta
-- ARGV owner ttl hash...
-- Repeat: the same effect. Returns {mime, size} for each hash, or {} for a hash that is not stored.
local meta = redis.call('HMGET', KEYS[2], 'owner', 'deleted')
local is_mine = redis.call('HGET', KEYS[1], 'owner') == ARGV[1] and (not meta[1] or meta[1] == ARGV[1]) and not meta[2]
local found = {}
for i = 3, #ARGV do
  local key = KEYS[1] .. ':' .. ARGV[i]
  local blob = is_mine and redis.call('HMGET', key, 'm', 'M', 'n') or {}  -- the fields that `blob_put` writes
  if blob[1] or blob[2] then
    redis.call('EXPIRE', key, ARGV[2], 'GT')  -- GT: a blob without expiry gets none
    redis.call('EXPIRE', KEYS[1], ARGV[2], 'GT')
    found[#found + 1] = {blob[1] or blob[2], blob[3] or redis.call('HSTRLEN', key, 'd')}
  else
    found[#found + 1] = {}
  end
end
return found
