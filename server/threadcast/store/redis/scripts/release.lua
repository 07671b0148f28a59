#!lua flags=allow-oom
-- release: release a chat that is at rest. The same step checks that this worker owns the chat, the head is unchanged,
-- and no command waits.
-- KEYS own due head inbox rests
-- ARGV chat worker head when_ms-or-'' left_ms-or-''
--      left_ms: from this time on, another worker may compact the log
-- Repeat: LOST, because the chat was released. Returns OK. Changes nothing and returns LOST, FENCED, or MORE if
-- commands wait.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'LOST' end
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[3] then return 'FENCED' end
if redis.call('XLEN', KEYS[4]) > 0 then return 'MORE' end
redis.call('HDEL', KEYS[1], ARGV[1])
-- The chat's timer is part of its folded state. The score is only an index of the timer, and the claim has overwritten
-- the score.
if ARGV[4] == '' then redis.call('ZREM', KEYS[2], ARGV[1]) else redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1]) end
if ARGV[5] ~= '' then redis.call('ZADD', KEYS[5], ARGV[5], ARGV[1]) end
return 'OK'
