#!lua flags=allow-oom
-- release: release a chat that is at rest. The same step checks that this worker owns the chat, the head is unchanged,
-- and no command waits. With a checkpoint of this head, the script also compacts the log: it renames the log and
-- sets an expiry, because only readers that resume still need the entries.
-- KEYS own due head inbox snap log recent history snap_slices staged
-- ARGV chat worker head when_ms-or-'' [checkpoint resume_seconds resume_entries trim part replaces_last drop_first
--      slices trim_entries resume_bytes]     (slices: as in `append`)
-- Repeat: LOST, because the chat was released. Returns OK, or LONG if the chat was released and `recent` still has too
-- many entries. Changes nothing and returns LOST, FENCED, MORE if commands wait, or UNSTAGED if slices of the
-- checkpoint are missing.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[3] then return 'FENCED' end
if redis.call('XLEN', KEYS[4]) > 0 then return 'MORE' end
local slices = tonumber(ARGV[12] or 0)
if slices > 0 and redis.call('HLEN', KEYS[10]) ~= slices then return 'UNSTAGED' end
redis.call('HDEL', KEYS[1], ARGV[1])
-- The chat's timer is part of its folded state. The score is only an index of the timer, and the claim has overwritten
-- the score.
if ARGV[4] == '' then redis.call('ZREM', KEYS[2], ARGV[1]) else redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1]) end

if ARGV[5] then
  local left = redis.call('PTTL', KEYS[3])  -- above 0 if the chat expires, with all its keys
  redis.call('SET', KEYS[5], ARGV[5], 'KEEPTTL')
  if left > 0 then redis.call('PEXPIRE', KEYS[5], left) end
  redis.call('UNLINK', KEYS[9])
  if slices > 0 then
    redis.call('RENAME', KEYS[10], KEYS[9])
    if left > 0 then redis.call('PEXPIRE', KEYS[9], left) else redis.call('PERSIST', KEYS[9]) end
  end
  if ARGV[9] ~= '' then
    if ARGV[10] == '1' then redis.call('RPOP', KEYS[8]) end
    redis.call('RPUSH', KEYS[8], ARGV[9])
    if ARGV[11] ~= '0' then redis.call('LPOP', KEYS[8], ARGV[11]) end
    if left > 0 then redis.call('PEXPIRE', KEYS[8], left) end
  end
  if redis.call('EXISTS', KEYS[6]) == 1 then
    local is_long = redis.call('XLEN', KEYS[6]) > tonumber(ARGV[13])
    if is_long then
      redis.call('XTRIM', KEYS[6], 'MAXLEN', '~', ARGV[7], 'LIMIT', ARGV[13])
    else
      if ARGV[8] ~= '' then redis.call('XTRIM', KEYS[6], 'MINID', ARGV[8]) end
      redis.call('XTRIM', KEYS[6], 'MAXLEN', ARGV[7])
      local share = tonumber(ARGV[14]) / redis.call('MEMORY', 'USAGE', KEYS[6])  -- Redis estimates it from five nodes
      if share < 1 then redis.call('XTRIM', KEYS[6], 'MAXLEN', math.floor(redis.call('XLEN', KEYS[6]) * share)) end
    end
    redis.call('RENAME', KEYS[6], KEYS[7])
    local resume = ARGV[6] * 1000
    if left > 0 and left < resume then resume = left end
    redis.call('PEXPIRE', KEYS[7], string.format('%.0f', resume))
    if is_long then return 'LONG' end
  end
end
return 'OK'
