#!lua flags=allow-oom
-- compact: compact the log of a chat at rest: set a checkpoint of its head, add a part to its history, rename its log,
-- and give the log an expiry, because only readers that resume still need the entries. An unchanged head shows that no
-- worker has taken the chat meanwhile. A claim or a command may have come: the next `take` renames the log back.
-- KEYS due head [snap log recent history snap_slices staged]
-- ARGV chat head due_ms when_ms-or-'' [checkpoint resume_seconds resume_entries trim part replaces_last drop_first
--      slices trim_entries resume_bytes]     (slices: as in `append`)
--      due_ms: the score that the release gave the chat. If it is unchanged, `when_ms` replaces it, or it is removed.
-- Repeat: OK, without a second effect, because `log` is renamed. Returns OK, or LONG if the log is compacted and
-- `recent` still has too many entries. Changes nothing and returns NO for another head, or UNSTAGED if slices of the
-- checkpoint are missing.
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return 'NO' end
local slices = tonumber(ARGV[12] or 0)
if slices > 0 and redis.call('HLEN', KEYS[8]) ~= slices then return 'UNSTAGED' end
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0) == tonumber(ARGV[3]) then
  if ARGV[4] == '' then redis.call('ZREM', KEYS[1], ARGV[1]) else redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1]) end
end

if ARGV[5] and redis.call('EXISTS', KEYS[4]) == 1 then
  local left = redis.call('PTTL', KEYS[2])  -- above 0 if the chat expires, with all its keys
  redis.call('SET', KEYS[3], ARGV[5], 'KEEPTTL')
  if left > 0 then redis.call('PEXPIRE', KEYS[3], left) end
  redis.call('UNLINK', KEYS[7])
  if slices > 0 then
    redis.call('RENAME', KEYS[8], KEYS[7])
    if left > 0 then redis.call('PEXPIRE', KEYS[7], left) else redis.call('PERSIST', KEYS[7]) end
  end
  if ARGV[9] ~= '' then
    if ARGV[10] == '1' then redis.call('RPOP', KEYS[6]) end
    redis.call('RPUSH', KEYS[6], ARGV[9])
    if ARGV[11] ~= '0' then redis.call('LPOP', KEYS[6], ARGV[11]) end
    if left > 0 then redis.call('PEXPIRE', KEYS[6], left) end
  end
  local is_long = redis.call('XLEN', KEYS[4]) > tonumber(ARGV[13])
  if is_long then
    redis.call('XTRIM', KEYS[4], 'MAXLEN', '~', ARGV[7], 'LIMIT', ARGV[13])
  else
    if ARGV[8] ~= '' then redis.call('XTRIM', KEYS[4], 'MINID', ARGV[8]) end
    redis.call('XTRIM', KEYS[4], 'MAXLEN', ARGV[7])
    local share = tonumber(ARGV[14]) / redis.call('MEMORY', 'USAGE', KEYS[4])  -- Redis estimates it from five nodes
    if share < 1 then redis.call('XTRIM', KEYS[4], 'MAXLEN', math.floor(redis.call('XLEN', KEYS[4]) * share)) end
  end
  redis.call('RENAME', KEYS[4], KEYS[5])
  local resume = ARGV[6] * 1000
  if left > 0 and left < resume then resume = left end
  redis.call('PEXPIRE', KEYS[5], string.format('%.0f', resume))
  if is_long then return 'LONG' end
end
return 'OK'
