#!lua flags=allow-oom
-- silent_owners: return those owners of a bucket's chats whose inbox channel has no listener, because the server has
-- closed their connection. The answer is empty if the calling worker itself does not listen at this server: a restart
-- or a promotion ends all subscriptions, and a missing subscription then does not mean that its worker is dead.
-- KEYS owners
-- ARGV worker mail_prefix looks
-- Repeat: only removes owners whose leases have ended. Returns names of workers. In a bucket with many owners, every
-- worker calls this script. About `looks` of the calls check the owners, and the other calls return nothing; the
-- microseconds of the clock choose which calls check.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local count = redis.call('ZCARD', KEYS[1])
if count == 0 or time[2] % count >= tonumber(ARGV[3]) then return {} end
if redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. ARGV[1])[2] == 0 then return {} end
local silent = {}
for _, owner in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. owner)[2] == 0 then silent[#silent + 1] = owner end
end
return silent
