#!lua flags=allow-oom
-- turn_return: take back a turn that was counted, since nothing came of it.
-- KEYS turns
-- ARGV turn
-- Repeat: the same again. Returns OK.
redis.call('ZREM', KEYS[1], ARGV[1])
return 'OK'
