#!lua
-- allowance_spend: count a run, unless it is counted already or the bound of the last hour or day is reached.
-- KEYS allowances
-- ARGV allowance per_hour per_day     (0: no bound)
-- Repeat: KNOWN. Returns {NEW, 0}, {KNOWN, 0} or {OVER, ms until one more run is admitted}.
local HOUR, DAY = 3600000, 86400000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - DAY)
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {'KNOWN', 0} end

local count, wait = redis.call('ZCARD', KEYS[1]), 0
local function look(used, bound, window)
  if bound == 0 or used < bound then return end
  -- The newest `bound` runs fill the window. One more run is admitted when the oldest of them leaves the window.
  local oldest = redis.call('ZRANGE', KEYS[1], count - bound, count - bound, 'WITHSCORES')
  wait = math.max(wait, oldest[2] + window - now)
end
look(redis.call('ZCOUNT', KEYS[1], '(' .. now - HOUR, '+inf'), tonumber(ARGV[2]), HOUR)
look(count, tonumber(ARGV[3]), DAY)
if wait > 0 then return {'OVER', wait} end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], DAY)
return {'NEW', 0}
