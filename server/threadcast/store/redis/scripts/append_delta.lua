#!lua
-- append_delta: append an entry that has only public events, like nearly all entries of an answer. Such an entry
-- consumes no command, and does not change the meta, checkpoint, lifetime or blobs. Its events are small enough to be
-- published. `append` appends all other entries.
-- KEYS log head
-- ARGV expected head id digest position version events log_channel is_followed
-- `is_followed` is not empty if the caller's own process follows the channel. The caller then passes the entry on to
-- its listeners itself, and the entry is published only if other processes follow the channel, too.
-- Repeat: DUP. Returns the time of the entry in milliseconds, DUP or FENCED.
local before, head, version, events = ARGV[1], ARGV[2], ARGV[6], ARGV[7]
local is = redis.call('GET', KEYS[2])
if is ~= before then return is == head and 'DUP' or 'FENCED' end

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if not redis.call('XADD', KEYS[1], 'NOMKSTREAM', ARGV[3], 'b', before, 'p', ARGV[5], 't', now, 'v', version, 'd', ARGV[4],
    'e', events) then
  return 'FENCED'
end
redis.call('SET', KEYS[2], head, 'KEEPTTL')
if ARGV[9] == '' or redis.call('PUBSUB', 'NUMSUB', ARGV[8])[2] > 1 then
  redis.call('PUBLISH', ARGV[8], '["' .. head .. '","' .. before .. '",' .. now .. ',' .. version .. ',' .. events .. ',[]]')
end
return now
