#!lua
-- take: append a fence. This entry is the election: whoever wrote before it is FENCED from here on. A new owner calls
-- it before it reads anything.
-- KEYS own head log meta
-- ARGV chat worker why log_channel
-- Repeat: one more fence, harmless. Returns {'LOST'} or {'OK', new head, previous head or '', owner, now}.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'LOST'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before = redis.call('GET', KEYS[2]) or ''
local epoch, n, position = string.match(before, '^(%d+)-(%d+) %S+ (%d+)$')
local meta = redis.call('HMGET', KEYS[4], 'owner', 'floor')

local fence = cjson.encode({ARGV[2], ARGV[3]})

-- Clock, head and floor together: each alone lets ids of a former life come again when the clock steps back. Where the
-- clock is behind, counting alone would give the epoch that a history lost in a failover had as well, and a reader of
-- that one would be taken for one of this: some thousands more, by chance, tell them apart.
epoch = math.max((epoch or 0) + 1, (meta[2] or 0) + 1)
if now >= epoch then
  epoch = now
else
  epoch = epoch + tonumber(string.sub(redis.sha1hex(before .. time[1] .. '.' .. time[2] .. fence), 1, 4), 16)
end
n = (n or 0) + 1
position = position or '0'
local id = string.format('%.0f-%.0f', epoch, n)
local digest = string.sub(redis.sha1hex(before .. id .. fence), 1, 16)
local head = id .. ' ' .. digest .. ' ' .. position
redis.call('XADD', KEYS[3], id, 'b', before, 'p', position, 't', now, 'v', 0, 'd', digest, 'f', fence)
redis.call('SET', KEYS[2], head, 'KEEPTTL')
redis.call('PUBLISH', ARGV[4], string.format('["%s","%s",%.0f,0,[],[],%s]', head, before, now, cjson.encode(ARGV[3])))
return {'OK', head, before, meta[1] or '', string.format('%.0f', now)}
