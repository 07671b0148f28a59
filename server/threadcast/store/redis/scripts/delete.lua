#!lua flags=allow-oom
-- delete: delete a chat so completely that a later chat of the same id inherits no owner, timer, entry id or command.
-- KEYS meta log head inbox snap seen seen:old own due chats blobs trace erased dead account gone recent history
--      snap_slices traces
-- ARGV chat owner nonce seen_generation seen_ttl deleted_ttl log_channel feed_channel mail_prefix
--      newest_letters list_channel
-- Repeat: OK without a second effect, even if the chat was imported again since. Returns OK, UNKNOWN or FOREIGN.
local chat, nonce = ARGV[1], '!' .. ARGV[3]
local meta = redis.call('HMGET', KEYS[1], 'owner', 'deleted', 'floor')
if not meta[1] then return 'UNKNOWN' end
if meta[1] ~= ARGV[2] then return 'FOREIGN' end
if redis.call('HEXISTS', KEYS[6], nonce) == 1 or redis.call('HEXISTS', KEYS[7], nonce) == 1 then return 'OK' end

-- Remember the nonce of every delete, even if the chat was deleted before: the same request may arrive again after the
-- chat was created anew.
if redis.call('HLEN', KEYS[6]) >= tonumber(ARGV[4]) then redis.call('RENAME', KEYS[6], KEYS[7]) end
redis.call('HSET', KEYS[6], nonce, '')
redis.call('EXPIRE', KEYS[6], ARGV[5])
if meta[2] then return 'OK' end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+)-')
local floor = math.max(meta[3] or 0, epoch or 0)
for _, hash in ipairs(redis.call('HKEYS', KEYS[11])) do redis.call('UNLINK', KEYS[11] .. ':' .. hash) end
redis.call('UNLINK', KEYS[11], KEYS[12], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[1], KEYS[17], KEYS[18], KEYS[19], KEYS[20])
redis.call('HSET', KEYS[1], 'owner', meta[1], 'deleted', now, 'died', now, 'floor', string.format('%.0f', floor))
redis.call('EXPIRE', KEYS[1], ARGV[6])

-- A dead letter contains content of the chat, too. Its JSON begins with the chat's id (`DeadLetter`). `dead_drop` has
-- searched the list before, so this script searches only the newest letters.
local mine = '{"chat_id":"' .. chat .. '",'
for _, letter in ipairs(redis.call('LRANGE', KEYS[14], -ARGV[10], -1)) do
  if string.sub(letter, 1, #mine) == mine then redis.call('LREM', KEYS[14], 1, letter) end
end
local counted = redis.call('HGET', KEYS[15], chat)
if counted then
  redis.call('HDEL', KEYS[15], chat)
  redis.call('HINCRBY', KEYS[15], '*', -counted)
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[16], '-inf', now - ARGV[6] * 1000, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[16], gone)  -- 100 at most; each deletion adds one entry
end
redis.call('ZADD', KEYS[16], now, chat)
redis.call('EXPIRE', KEYS[16], ARGV[6])
redis.call('SET', KEYS[13], now)  -- then the private store rewrites its file (`store/embedded/erasure.py`)

local worker = redis.call('HGET', KEYS[8], chat)
redis.call('HDEL', KEYS[8], chat)
redis.call('ZREM', KEYS[9], chat)
redis.call('ZREM', KEYS[10], chat)
redis.call('PUBLISH', ARGV[7], '["deleted"]')
-- The comment in `append` explains these two channels.
if ARGV[11] ~= '' then redis.call('PUBLISH', ARGV[11], chat) end
if ARGV[11] == '' or redis.call('PUBSUB', 'NUMSUB', ARGV[8])[2] > 0 then redis.call('PUBLISH', ARGV[8], chat) end
if worker then redis.call('PUBLISH', ARGV[9] .. worker, chat) end
return 'OK'
