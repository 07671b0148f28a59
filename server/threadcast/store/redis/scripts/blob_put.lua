#!lua
-- blob_put: store a blob with a chat for a limited time. An append that refers to the blob removes that limit.
-- KEYS blobs blob meta account account_prefix staged
-- ARGV hash owner mime data ttl max_count max_bytes revives overhead chat size slices
--      slices: the number of slices that `stage` has written, 0 if all bytes are in `data`
-- Repeat: KEPT. Returns KEPT, FULL, FOREIGN, GONE, or UNSTAGED if the blob is not stored and slices of it are missing.
local size, slices = tonumber(ARGV[11]), tonumber(ARGV[12])
local meta = redis.call('HMGET', KEYS[3], 'owner', 'deleted')
if meta[1] and meta[1] ~= ARGV[2] then return 'FOREIGN' end
if meta[2] and ARGV[8] == '0' then return 'GONE' end

local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[2] then
  -- One user stored these blobs before the chat existed, and another user then created the chat.
  if not meta[1] then return 'FOREIGN' end
  for _, hash in ipairs(redis.call('HKEYS', KEYS[1])) do redis.call('UNLINK', KEYS[1] .. ':' .. hash) end
  redis.call('DEL', KEYS[1])
  local counted = redis.call('HGET', KEYS[5] .. owner, ARGV[10])
  if counted then
    redis.call('HDEL', KEYS[5] .. owner, ARGV[10])
    redis.call('HINCRBY', KEYS[5] .. owner, '*', -counted)
  end
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
    for _, hash in ipairs(redis.call('HKEYS', KEYS[1])) do  -- the index may still name expired blobs
      if hash ~= 'owner' and redis.call('EXISTS', KEYS[1] .. ':' .. hash) == 0 then
        redis.call('HDEL', KEYS[1], hash)
      end
    end
    if not used() then return 'FULL' end
  end
  if slices == 0 then
    redis.call('HSET', KEYS[2], 'm', ARGV[3], 'd', ARGV[4])
  else
    if redis.call('HLEN', KEYS[6]) ~= slices then return 'UNSTAGED' end
    redis.call('HSET', KEYS[6], 'M', ARGV[3], 'n', size)
    redis.call('RENAME', KEYS[6], KEYS[2])
  end
  redis.call('EXPIRE', KEYS[2], ARGV[5])
  redis.call('HINCRBY', KEYS[4], ARGV[10], size + ARGV[9])
  redis.call('HINCRBY', KEYS[4], '*', size + ARGV[9])
else
  redis.call('UNLINK', KEYS[6])
  redis.call('EXPIRE', KEYS[2], ARGV[5], 'GT')  -- GT: a blob without expiry gets none
end
local is_new = redis.call('EXISTS', KEYS[1]) == 0
redis.call('HSET', KEYS[1], 'owner', ARGV[2], ARGV[1], size)
if is_new then redis.call('EXPIRE', KEYS[1], ARGV[5]) else redis.call('EXPIRE', KEYS[1], ARGV[5], 'GT') end
return 'KEPT'
