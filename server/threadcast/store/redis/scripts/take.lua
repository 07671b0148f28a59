#!lua
-- take: append a fence, which makes the worker the owner. From now on, every append of an earlier owner is answered
-- with FENCED. A new owner calls this script before it reads anything.
-- KEYS own head log meta recent history snap_slices rests due
-- ARGV chat worker why log_channel
-- Repeat: appends one more fence, which is harmless. Returns {'LOST'} or {'OK', new head, previous head or '', owner,
-- now}. A chat that has expired is LOST, and needs no worker any more.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'LOST'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = redis.call('GET', KEYS[2]) or ''
local epoch, n, position = string.match(before, '^(%d+)-(%d+) %S+ (%d+)$')
local meta = redis.call('HMGET', KEYS[4], 'owner', 'floor', 'claimed')

if before == '' and not meta[1] then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[9], ARGV[1])
  return {'LOST'}
end
redis.call('ZREM', KEYS[8], ARGV[1])
if meta[3] then redis.call('HDEL', KEYS[4], 'claimed') end
local fence = cjson.encode({ARGV[2], ARGV[3]})

-- The new epoch is larger than the head's epoch and the floor, and not smaller than the clock. With only one of the
-- three bounds, ids of a deleted chat could be used again when the clock steps back. If the clock is behind, adding 1
-- could give the epoch of a history that a failover lost. Readers of the lost history would then be taken for readers
-- of this history. Adding a random number below 65,536 makes the two epochs differ.
epoch = math.max((epoch or 0) + 1, (meta[2] or 0) + 1)
if now >= epoch then
  epoch = now
else
  epoch = epoch + tonumber(string.sub(redis.sha1hex(before .. time[1] .. '.' .. time[2] .. fence), 1, 4), 16)
end
n = (n or 0) + 1
position = position or '0'
local id = string.format('%.0f-%.0f', epoch, n)
local digest = string.sub(redis.sha1hex(before .. id .. fence), 1, 16)
local head = id .. ' ' .. digest .. ' ' .. position
if before == '' then
  redis.call('UNLINK', KEYS[5], KEYS[6], KEYS[7])  -- a delete by an older version leaves them behind
elseif redis.call('EXISTS', KEYS[3]) == 0 and redis.call('EXISTS', KEYS[5]) == 1 then
  -- Rename the log of a chat at rest back, and give it the lifetime of the head again.
  redis.call('RENAME', KEYS[5], KEYS[3])
  local left = redis.call('PTTL', KEYS[2])
  if left > 0 then redis.call('PEXPIRE', KEYS[3], left) else redis.call('PERSIST', KEYS[3]) end
end
redis.call('XADD', KEYS[3], id, 'b', before, 'p', position, 't', now, 'v', 0, 'd', digest, 'f', fence)
redis.call('SET', KEYS[2], head, 'KEEPTTL')
redis.call('PUBLISH', ARGV[4], string.format('["%s","%s",%.0f,0,[],[],%s]', head, before, now, cjson.encode(ARGV[3])))
return {'OK', head, before, meta[1] or '', string.format('%.0f', now)}
