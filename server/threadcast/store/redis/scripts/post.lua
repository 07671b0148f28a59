#!lua
-- post: store one command in a chat's inbox: check whether to refuse the command, remember its request id, append it to
-- the inbox, and wake a worker. These are one atomic step, so that an accepted command and its remembered id are stored
-- or lost together.
-- KEYS meta inbox seen seen:old due own bell log head snap history account snap_slices
-- ARGV chat owner principal request digest nonce body kind creates bound counts_queue
--      seen_generation seen_ttl fast_ms mail_prefix about charged_bytes
-- Repeat: ACCEPTED. Returns {outcome, inbox id or ''}.
local chat, owner, request = ARGV[1], ARGV[2], ARGV[4]
-- Keep 48 bits of the digest and 32 bits of the nonce. With such short values the hash takes a third of the memory.
local digest, nonce = string.sub(ARGV[5], 1, 12), string.sub(ARGV[6], -8)
local importing = ARGV[8] == 'import'
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted', 'queue')

if meta[1] and meta[1] ~= owner then return {'FOREIGN', ''} end
if meta[2] and not importing then return {'GONE', ''} end
if not meta[1] and ARGV[9] == '0' then return {'UNKNOWN', ''} end

-- This check comes before an import removes `deleted`: a late duplicate of an import must not revive a chat that was
-- deleted again.
local seen = redis.call('HGET', KEYS[3], request) or redis.call('HGET', KEYS[4], request)
if seen then
  -- Older versions wrote longer values: the whole digest and nonce, and the inbox id.
  local was_digest, was_nonce = string.match(seen, '^(%S+) (%S+)')
  if string.sub(was_nonce, -8) == nonce then return {'ACCEPTED', ''} end
  if string.sub(was_digest, 1, 12) == digest then return {'DUPLICATE', ''} end
  return {'MISMATCH', ''}
end

-- Store no refusal of a request id that was accepted, because the accepted command has, or will have, its own outcome.
if ARGV[16] ~= '' and (redis.call('HEXISTS', KEYS[3], ARGV[16]) == 1 or redis.call('HEXISTS', KEYS[4], ARGV[16]) == 1) then
  return {'DUPLICATE', ''}
end

local waiting = redis.call('XLEN', KEYS[2])
if ARGV[11] == '1' then waiting = waiting + tonumber(meta[3] or 0) end
if waiting >= tonumber(ARGV[10]) then return {'FULL', ''} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not meta[1] then redis.call('HSET', KEYS[1], 'owner', owner) end
redis.call('HSETNX', KEYS[1], 'created_at', now)
if meta[2] then redis.call('HDEL', KEYS[1], 'deleted') end
-- A chat that was deleted or has no messages expires. Cancel this, so that the accepted command cannot expire in the
-- inbox.
if redis.call('PTTL', KEYS[1]) > 0 then
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[13]}) do
    redis.call('PERSIST', key)
  end
end

local id = redis.call('XADD', KEYS[2], '*', 'r', request, 'u', ARGV[3], 'd', ARGV[7])
if redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[12]) then redis.call('RENAME', KEYS[3], KEYS[4]) end
redis.call('HSET', KEYS[3], request, digest .. ' ' .. nonce)
redis.call('EXPIRE', KEYS[3], ARGV[13])

redis.call('HINCRBY', KEYS[12], chat, #ARGV[7] + ARGV[17])
redis.call('HINCRBY', KEYS[12], '*', #ARGV[7] + ARGV[17])

local worker = redis.call('HGET', KEYS[6], chat)
if worker then
  redis.call('ZADD', KEYS[5], 'NX', now, chat)
  if redis.call('PUBLISH', ARGV[15] .. worker, chat) == 0 then  -- the owner does not listen: shorten its lease
    redis.call('ZADD', KEYS[5], 'LT', now + ARGV[14], chat)
  end
-- LT and not NX: with NX, the command would not wake a chat that has a timer in the far future.
elseif redis.call('ZADD', KEYS[5], 'LT', 'CH', now, chat) == 1 then
  if redis.call('LLEN', KEYS[7]) == 0 then redis.call('LPUSH', KEYS[7], 'x') end
end
return {'ACCEPTED', id}
