#!lua
-- ring: put a token back into a bucket's bell, unless the bell has one already.
-- KEYS bell
-- Repeat: changes nothing. Returns OK.
if redis.call('LLEN', KEYS[1]) == 0 then redis.call('LPUSH', KEYS[1], 'x') end
return 'OK'
