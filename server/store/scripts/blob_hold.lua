#!lua
-- blob_hold: which of these blobs the owner's chat has; they stay a while longer, so that a command may refer to them.
-- KEYS blobs meta
-- ARGV owner ttl hash...
-- Repeat: the same again. Returns per hash {mime, size}, or {} for one that is not there.
local meta = redis.call('HMGET', KEYS[2], 'owner', 'deleted')
local is_mine = redis.call('HGET', KEYS[1], 'owner') == ARGV[1] and (not meta[1] or meta[1] == ARGV[1]) and not meta[2]
local found = {}
for i = 3, #ARGV do
  local key = KEYS[1] .. ':' .. ARGV[i]
  local mime = is_mine and redis.call('HGET', key, 'm')
  if mime then
    redis.call('EXPIRE', key, ARGV[2], 'GT')  -- GT: one that stays for ever is not made to expire
    redis.call('EXPIRE', KEYS[1], ARGV[2], 'GT')
    found[#found + 1] = {mime, redis.call('HSTRLEN', key, 'd')}
  else
    found[#found + 1] = {}
  end
end
return found
