#!lua
-- dead: store a copy of a command that was given up, before the append that consumes the command.
-- KEYS dead
-- ARGV entry limit
-- Repeat: stores a second copy, which is harmless. Returns OK.
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -ARGV[2], -1)
return 'OK'
