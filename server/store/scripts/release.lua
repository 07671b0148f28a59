#!lua flags=allow-oom
-- release: leave a chat that rests, in one step with the proof that it does: mine, nothing written since, no command.
-- KEYS own due head inbox
-- ARGV chat worker head when_ms-or-''
-- Repeat: LOST, which means done. Returns OK, MORE, FENCED or LOST.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[3] then return 'FENCED' end
if redis.call('XLEN', KEYS[4]) > 0 then return 'MORE' end
redis.call('HDEL', KEYS[1], ARGV[1])
-- The timer itself lives in the folded state; the score is only its index, which the claim had overwritten.
if ARGV[4] == '' then redis.call('ZREM', KEYS[2], ARGV[1]) else redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1]) end
return 'OK'
