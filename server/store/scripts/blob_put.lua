#!lua
-- blob_put: lay a blob beside a chat for a while. An append that refers to it makes it stay.
-- KEYS blobs blob meta
-- ARGV hash owner mime data ttl max_count max_bytes revives
-- Repeat: KEPT. Returns KEPT, FULL, FOREIGN or GONE.
local size = #ARGV[4]
local meta = redis.call('HMGET', KEYS[3], 'owner', 'deleted')
if meta[1] and meta[1] ~= ARGV[2] then return 'FOREIGN' end
if meta[2] and ARGV[8] == '0' then return 'GONE' end

local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[2] then
  -- Laid down before the chat was made, by who did not make it in the end.
  if not meta[1] then return 'FOREIGN' end
  for _, hash in ipairs(redis.call('HKEYS', KEYS[1])) do redis.call('UNLINK', KEYS[1] .. ':' .. hash) end
  redis.call('DEL', KEYS[1])
end

if redis.call('EXISTS', KEYS[2]) == 0 then
  local function used()
    local count, bytes = 0, 0
    local flat = redis.call('HGETALL', KEYS[1])
    for i = 1, #flat, 2 do
      if flat[i] ~= 'owner' then count = count + 1; bytes = bytes + flat[i + 1] end
    end
    return count < tonumber(ARGV[6]) and bytes + size <= tonumber(ARGV[7])
  end
  redis.call('HDEL', KEYS[1], ARGV[1])
  if not used() then
    for _, hash in ipairs(redis.call('HKEYS', KEYS[1])) do  -- those that expired still stand in the index
      if hash ~= 'owner' and redis.call('EXISTS', KEYS[1] .. ':' .. hash) == 0 then
        redis.call('HDEL', KEYS[1], hash)
      end
    end
    if not used() then return 'FULL' end
  end
  redis.call('HSET', KEYS[2], 'm', ARGV[3], 'd', ARGV[4])
  redis.call('EXPIRE', KEYS[2], ARGV[5])
else
  redis.call('EXPIRE', KEYS[2], ARGV[5], 'GT')  -- GT: one that stays for ever is not made to expire
end
local is_new = redis.call('EXISTS', KEYS[1]) == 0
redis.call('HSET', KEYS[1], 'owner', ARGV[2], ARGV[1], size)
if is_new then redis.call('EXPIRE', KEYS[1], ARGV[5]) else redis.call('EXPIRE', KEYS[1], ARGV[5], 'GT') end
return 'KEPT'
