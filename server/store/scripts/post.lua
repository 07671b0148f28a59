#!lua
-- post: lay one command in a chat's inbox: refuse, remember its id, lay it down, wake somebody. One step, so that an
-- accepted command and the memory of its id come and go together.
-- KEYS meta inbox seen seen:old due own bell log head snap
-- ARGV chat owner principal request digest nonce body kind creates bound counts_queue
--      seen_generation seen_ttl fast_ms mail_prefix about
-- Repeat: ACCEPTED with the first inbox id. Returns {outcome, inbox id}.
local chat, owner, request, digest, nonce = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local importing = ARGV[8] == 'import'
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted', 'queue')

if meta[1] and meta[1] ~= owner then return {'FOREIGN', ''} end
if meta[2] and not importing then return {'GONE', ''} end
if not meta[1] and ARGV[9] == '0' then return {'UNKNOWN', ''} end

-- Before an import clears `deleted`: a late duplicate of it must not revive a chat that was deleted again.
local seen = redis.call('HGET', KEYS[3], request) or redis.call('HGET', KEYS[4], request)
if seen then
  local was_digest, was_nonce, was_id = string.match(seen, '^(%S+) (%S+) (%S+)$')
  if was_nonce == nonce then return {'ACCEPTED', was_id} end
  if was_digest == digest then return {'DUPLICATE', ''} end
  return {'MISMATCH', ''}
end

-- A refusal never speaks of an id that was accepted: its command has, or will have, an outcome of its own.
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
-- A chat that was to vanish (deleted, or without messages) stays: what we accept must not expire in its inbox.
if redis.call('PTTL', KEYS[1]) > 0 then
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[8], KEYS[9], KEYS[10]}) do redis.call('PERSIST', key) end
end

local id = redis.call('XADD', KEYS[2], '*', 'r', request, 'u', ARGV[3], 'd', ARGV[7])
if redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[12]) then redis.call('RENAME', KEYS[3], KEYS[4]) end
redis.call('HSET', KEYS[3], request, digest .. ' ' .. nonce .. ' ' .. id)
redis.call('EXPIRE', KEYS[3], ARGV[13])

local worker = redis.call('HGET', KEYS[6], chat)
if worker then
  redis.call('ZADD', KEYS[5], 'NX', now, chat)
  if redis.call('PUBLISH', ARGV[15] .. worker, chat) == 0 then  -- the owner's connection is gone: cut its lease
    redis.call('ZADD', KEYS[5], 'LT', now + ARGV[14], chat)
  end
-- Never NX here: a chat with a timer in the far future would not hear of the command.
elseif redis.call('ZADD', KEYS[5], 'LT', 'CH', now, chat) == 1 then
  if redis.call('LLEN', KEYS[7]) == 0 then redis.call('LPUSH', KEYS[7], 'x') end
end
return {'ACCEPTED', id}
