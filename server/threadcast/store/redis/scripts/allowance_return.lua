#!lua flags=allow-oom
-- allowance_return: uncount a run, because its command was not accepted.
-- KEYS allowances
-- ARGV allowance
-- Repeat: changes nothing. Returns OK.
redis.call('ZREM', KEYS[1], ARGV[1])
return 'OK'
