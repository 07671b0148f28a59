#!lua flags=allow-oom
-- account_measure: measure one chat, and set its bytes in the account of a principal.
-- KEYS account meta blobs log head snap inbox seen seen:old trace recent history
--      snap_slices traces
-- ARGV chat owner blob_overhead chat_overhead account_prefix
--      owner: '' for the chat's owner; the account is then account_prefix with this owner, and not KEYS[1]
-- Repeat: the same effect. Returns the bytes.
local chat, owner, account = ARGV[1], ARGV[2], KEYS[1]
local meta = redis.call('HMGET', KEYS[2], 'owner', 'deleted')
local index = redis.call('HGETALL', KEYS[3])
local of = {}
for i = 1, #index, 2 do of[index[i]] = index[i + 1] end
if owner == '' then
  owner = meta[1] or of['owner']
  if not owner then return 0 end
  account = ARGV[5] .. owner
end

local bytes = 0
if meta[1] == owner and not meta[2] then
  bytes = tonumber(ARGV[4])
  for i = 4, #KEYS do
    -- A server may forbid or lack MEMORY USAGE; then at least the checkpoint is counted.
    local usage = redis.pcall('MEMORY', 'USAGE', KEYS[i])
    if type(usage) == 'number' then
      bytes = bytes + usage
    elseif type(usage) == 'table' and i == 6 then
      bytes = bytes + redis.call('STRLEN', KEYS[i])
    end
  end
end
if of['owner'] == owner then
  for hash, size in pairs(of) do
    if hash ~= 'owner' and redis.call('EXISTS', KEYS[3] .. ':' .. hash) == 1 then
      bytes = bytes + size + ARGV[3]
    end
  end
end

local counted = redis.call('HGET', account, chat) or 0
if bytes > 0 then redis.call('HSET', account, chat, string.format('%.0f', bytes)) else redis.call('HDEL', account, chat) end
if bytes ~= tonumber(counted) then redis.call('HINCRBY', account, '*', string.format('%.0f', bytes - counted)) end
return bytes
