#!lua
-- append: commit one entry in one atomic step: append the entry, remove the commands that it consumes, change the
-- chat's meta, set a checkpoint, trim the log, and publish the entry. The entry is appended only if the head is still
-- `expected`.
-- KEYS log head inbox meta snap history snap_slices chats blobs staged
-- ARGV chat expected head version events facts acks snap trim lifetime expire_seconds publish_max log_channel feed_channel
--      meta_count blob_hashes slices trim_entries list_channel [key value]... [inbox id, request]...
--      slices: the number of slices that `stage` has written, 0 if the whole checkpoint is in `snap`
-- Repeat: DUP. Returns OK, DUP, FENCED, or UNSTAGED if slices of the checkpoint are missing. Only OK changes anything.
local before, head = ARGV[2], ARGV[3]
local is = redis.call('GET', KEYS[2])
if not is then return 'FENCED' end
if is ~= before then return is == head and 'DUP' or 'FENCED' end

-- A failover may have lost a command that the writer still has in memory. The lost command must not take effect now:
-- the store would accept its request id once more, and the command would take effect twice.
local consumed = 20 + 2 * ARGV[15]
local ids = {}
for i = consumed, #ARGV, 2 do
  local found = redis.call('XRANGE', KEYS[3], ARGV[i], ARGV[i])[1]
  if not found or found[2][2] ~= ARGV[i + 1] then return 'FENCED' end
  ids[#ids + 1] = ARGV[i]
end

local slices = tonumber(ARGV[17])
if slices > 0 and redis.call('HLEN', KEYS[10]) ~= slices then return 'UNSTAGED' end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, digest, position = string.match(head, '^(%S+) (%S+) (%d+)$')
local events, facts, acks = ARGV[5], ARGV[6], ARGV[7]
local entry = {'b', before, 'p', position, 't', now, 'v', ARGV[4], 'd', digest, 'e', events}
if facts ~= '' then entry[#entry + 1] = 'x'; entry[#entry + 1] = facts end
if acks ~= '' then entry[#entry + 1] = 'a'; entry[#entry + 1] = acks end
-- Refuse to write to a chat that has a head and no log: the next owner finds that entries are missing, and quarantines
-- the chat.
if not redis.call('XADD', KEYS[1], 'NOMKSTREAM', id, unpack(entry)) then return 'FENCED' end
redis.call('SET', KEYS[2], head, 'KEEPTTL')
if #ids > 0 then redis.call('XDEL', KEYS[3], unpack(ids)) end
local expires = ARGV[10] == 'expire' and redis.call('XLEN', KEYS[3]) == 0  -- not while commands wait

if consumed > 20 then
  redis.call('HSET', KEYS[4], 'last_active', now, unpack(ARGV, 20, consumed - 1))
  if ARGV[10] ~= 'expire' then redis.call('ZADD', KEYS[8], now, ARGV[1]) end
  -- On one server, feeds of this version listen to the single channel of the list, and feeds of version 0.1.0 to the
  -- channel of each bucket.
  if ARGV[19] ~= '' then redis.call('PUBLISH', ARGV[19], ARGV[1]) end
  if ARGV[19] == '' or redis.call('PUBSUB', 'NUMSUB', ARGV[14])[2] > 0 then redis.call('PUBLISH', ARGV[14], ARGV[1]) end
end
if ARGV[8] ~= '' then
  redis.call('SET', KEYS[5], ARGV[8], 'KEEPTTL')
  redis.call('UNLINK', KEYS[7])
  if slices > 0 then
    redis.call('RENAME', KEYS[10], KEYS[7])
    local left = redis.call('PTTL', KEYS[2])
    if left > 0 then redis.call('PEXPIRE', KEYS[7], left) else redis.call('PERSIST', KEYS[7]) end
  end
end
if ARGV[9] ~= '' then
  -- Never trim beyond the checkpoint: entries that are not folded into it must stay in the log.
  local snap = redis.call('GETRANGE', KEYS[5], 0, 63)
  local epoch, count = string.match(snap, '^(%d+)-(%d+)')
  local to_epoch, to_count = string.match(ARGV[9], '^(%d+)-(%d+)$')
  epoch, count, to_epoch, to_count = tonumber(epoch), tonumber(count), tonumber(to_epoch), tonumber(to_count)
  if epoch then
    local is_kept = to_epoch < epoch or (to_epoch == epoch and to_count <= count)
    local first = is_kept and ARGV[9] or string.match(snap, '^%S+')
    if redis.call('XLEN', KEYS[1]) <= tonumber(ARGV[18]) then
      redis.call('XTRIM', KEYS[1], 'MINID', first)
    else
      redis.call('XTRIM', KEYS[1], 'MINID', '~', first, 'LIMIT', ARGV[18])
    end
  end
end
-- Keep the blobs that the entry refers to. This step comes before the lifetime below, which may set an expiry on all
-- keys of the chat.
for hash in string.gmatch(ARGV[16], '%x+') do
  redis.call('PERSIST', KEYS[9] .. ':' .. hash)
  redis.call('PERSIST', KEYS[9])
end
if expires then
  for _, hash in ipairs(redis.call('HKEYS', KEYS[9])) do
    redis.call('EXPIRE', KEYS[9] .. ':' .. hash, ARGV[11])
  end
  redis.call('EXPIRE', KEYS[9], ARGV[11])
end
if expires or ARGV[10] == 'persist' then
  for i = 1, 7 do
    if expires then redis.call('EXPIRE', KEYS[i], ARGV[11]) else redis.call('PERSIST', KEYS[i]) end
  end
end
if ARGV[10] == 'expire' then redis.call('ZREM', KEYS[8], ARGV[1]) end

-- The message is joined from the arguments, because encoding large strings with cjson would cost more than the rest of
-- the script.
local news = '["' .. head .. '","' .. before .. '",' .. string.format('%.0f', now) .. ',' .. ARGV[4]
if #events <= tonumber(ARGV[12]) then news = news .. ',' .. events .. ',' .. (acks == '' and '[]' or acks) end
redis.call('PUBLISH', ARGV[13], news .. ']')
return 'OK'
