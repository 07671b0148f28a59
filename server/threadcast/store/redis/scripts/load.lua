#!lua flags=no-writes
-- load: return the checkpoint, the first entries after it or a later part of the log, and the head, all as of one
-- moment. Other clients wait while the script runs. So the size and number of the entries are bounded, and a large
-- checkpoint is left out.
-- KEYS snap log head recent
-- ARGV max_bytes max_entries whole_max_bytes after through newest
--      after: '' to begin with the checkpoint, else the id after which to begin ('-' for the beginning of the log);
--      through: the last id, or '+' for all; newest: '1' for the newest entries, newest first, else ''.
-- Repeat: the same answer. Returns {checkpoint or '', its size in bytes, entries, head or '', 1 if there may be more
-- entries, else 0, bytes of the entries}. Of a checkpoint above whole_max_bytes only the first 128 bytes are returned;
-- `snap_slice` reads the rest.
local log = redis.call('EXISTS', KEYS[2]) == 1 and KEYS[2] or KEYS[4]  -- `recent` is the log of a chat at rest
local max, max_entries, after, newest = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4], ARGV[6] == '1'
local snap, snap_size = '', 0
if after == '' then
  snap_size = redis.call('STRLEN', KEYS[1])
  if snap_size <= tonumber(ARGV[3]) then
    snap = redis.call('GET', KEYS[1]) or ''
  else
    snap = redis.call('GETRANGE', KEYS[1], 0, 127)
  end
  after = string.match(snap, '^%d+%-%d+') or '-'
end
local from, to = after == '-' and '-' or '(' .. after, ARGV[5]

-- Each step reads at most 8 entries, and no more than would fit if each were as large as the largest entry so far. So a
-- step of unexpectedly large entries (2 MB, PROTOCOL §18) reads at most 16 MB too much.
local entries, size, largest, count, more = {}, 0, 1, 1, 0
repeat
  local step
  if newest then
    step = redis.call('XREVRANGE', log, to, from, 'COUNT', count)
  else
    step = redis.call('XRANGE', log, from, to, 'COUNT', count)
  end
  for _, entry in ipairs(step) do
    local fields = entry[2]
    local bytes = #(fields[12] or '') + #(fields[14] or '') + #(fields[16] or '')
    if #entries > 0 and size + bytes > max then more = 1 break end
    entries[#entries + 1] = entry
    size = size + bytes
    if bytes > largest then largest = bytes end
  end
  if more == 1 or #step < count then break end
  if size >= max or #entries >= max_entries then more = 1 break end
  if newest then to = '(' .. step[#step][1] else from = '(' .. step[#step][1] end
  count = math.max(1, math.min(2 * count, 8, max_entries - #entries, math.floor((max - size) / largest)))
until false
return {snap, snap_size, entries, redis.call('GET', KEYS[3]) or '', more, size}
