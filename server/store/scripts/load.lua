#!lua flags=no-writes
-- load: the checkpoint, the entries after it, and the head, as they were at one moment.
-- KEYS snap log head
-- Repeat: the same again. Returns {checkpoint or '', entries, head or ''}.
local snap = redis.call('GET', KEYS[1]) or ''
local from = string.match(snap, '^%d+%-%d+')
return {snap, redis.call('XRANGE', KEYS[2], from and '(' .. from or '-', '+'), redis.call('GET', KEYS[3]) or ''}
