#!lua flags=allow-oom
-- compact: compact the log of a chat at rest: set a checkpoint of its head, add a part to its history, rename its log,
-- and give the log an expiry, because only readers that resume still need the entries. The same step checks that no
-- worker owns the chat and that the head is unchanged. A command may have come: the next `take` renames the log back.
-- KEYS rests head own [snap log recent history snap_slices staged]
-- ARGV chat head [checkpoint resume_seconds resume_entries trim part replaces_last drop_first
--      slices trim_entries resume_bytes]     (slices: as in `append`; without a checkpoint, the log stays as it is)
-- Repeat: OK, without a second effect, because `log` is renamed. Returns OK, or LONG if the log is compacted and
-- `recent` still has too many entries. Changes nothing and returns NO for another head
-- or an owned chat, or UNSTAGED if slices of the
-- checkpoint are missing. A chat that is gone is taken from `rests`.
local is = redis.call('GET', KEYS[2])
if not is then redis.call('ZREM', KEYS[1], ARGV[1]) end
if is ~= ARGV[2] or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return 'NO' end
local compacts = ARGV[3] and redis.call('EXISTS', KEYS[5]) == 1
local slices = tonumber(ARGV[10] or 0)
if compacts and slices > 0 and redis.call('HLEN', KEYS[9]) ~= slices then return 'UNSTAGED' end
redis.call('ZREM', KEYS[1], ARGV[1])

if compacts then
  local left = redis.call('PTTL', KEYS[2])  -- above 0 if the chat expires, with all its keys
  redis.call('SET', KEYS[4], ARGV[3], 'KEEPTTL')
  if left > 0 then redis.call('PEXPIRE', KEYS[4], left) end
  redis.call('UNLINK', KEYS[8])
  if slices > 0 then
    redis.call('RENAME', KEYS[9], KEYS[8])
    if left > 0 then redis.call('PEXPIRE', KEYS[8], left) else redis.call('PERSIST', KEYS[8]) end
  end
  if ARGV[7] ~= '' then
    if ARGV[8] == '1' then redis.call('RPOP', KEYS[7]) end
    redis.call('RPUSH', KEYS[7], ARGV[7])
    if ARGV[9] ~= '0' then redis.call('LPOP', KEYS[7], ARGV[9]) end
    if left > 0 then redis.call('PEXPIRE', KEYS[7], left) end
  end
  local is_long = redis.call('XLEN', KEYS[5]) > tonumber(ARGV[11])
  if is_long then
    redis.call('XTRIM', KEYS[5], 'MAXLEN', '~', ARGV[5], 'LIMIT', ARGV[11])
  else
    if ARGV[6] ~= '' then redis.call('XTRIM', KEYS[5], 'MINID', ARGV[6]) end
    redis.call('XTRIM', KEYS[5], 'MAXLEN', ARGV[5])
    local share = tonumber(ARGV[12]) / redis.call('MEMORY', 'USAGE', KEYS[5])  -- Redis estimates it from five nodes
    if share < 1 then redis.call('XTRIM', KEYS[5], 'MAXLEN', math.floor(redis.call('XLEN', KEYS[5]) * share)) end
  end
  redis.call('RENAME', KEYS[5], KEYS[6])
  local resume = ARGV[4] * 1000
  if left > 0 and left < resume then resume = left end
  redis.call('PEXPIRE', KEYS[6], string.format('%.0f', resume))
  if is_long then return 'LONG' end
end
return 'OK'
