#!lua
-- claim: assign due chats of a bucket to a worker, by moving their scores one lease into the future. The claim only
-- avoids double work; the fence makes sure that only one worker writes.
-- KEYS due own bell owners
-- ARGV worker limit lease_ms looked_at waited_ms
--      waited_ms: a full worker gives a time above 0; the script then takes only chats that have been due for at least
--      that time, and chats of dead workers
-- Repeat: claims other chats or none. If a reply is lost, its chats are due again after one lease.
-- Returns {chat, previous owner or '', has_begun, lease_left_ms, principal, rank, ...}.
--      has_begun: '' if the previous owner claimed the chat and wrote no fence
--      lease_left_ms: how long the previous owner may still believe that it owns its chats of this bucket
--      principal, rank: set if the chat's run waits for a slot and no command waits, else ''
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, looked_at, waited = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5] or 0)
local chats = string.sub(KEYS[1], 1, -4) .. 'chat:'  -- all keys of a bucket's chats are in the slot of its `due`

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - waited, 'LIMIT', 0, looked_at)
local has_more = #due == looked_at
if waited > 0 then
  for _, chat in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now - waited, now, 'LIMIT', 0, looked_at)) do
    if redis.call('HEXISTS', KEYS[2], chat) == 1 then due[#due + 1] = chat end
  end
end
if #due > limit then
  -- More chats are due than this worker takes, so the principals get one chat each in turn. The newest chats are read,
  -- too, because a chat of one principal may wait behind thousands of chats of another principal.
  local seen = {}
  for _, chat in ipairs(due) do seen[chat] = true end
  if has_more then
    for _, chat in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], now - waited, '-inf', 'LIMIT', 0, looked_at)) do
      if not seen[chat] then due[#due + 1] = chat end
    end
  end
  local principals, of = {}, {}
  for _, chat in ipairs(due) do
    local principal = redis.call('HGET', chats .. chat .. ':meta', 'owner') or ''
    if not of[principal] then
      of[principal] = {}
      principals[#principals + 1] = principal
    end
    table.insert(of[principal], chat)
  end
  due = {}
  for turn = 1, limit do
    for _, principal in ipairs(principals) do
      if #due < limit then due[#due + 1] = of[principal][turn] end
    end
  end
end

local claimed = {}
for _, chat in ipairs(due) do
  claimed[#claimed + 1] = chat
  local previous = redis.call('HGET', KEYS[2], chat) or ''
  local meta = chats .. chat .. ':meta'
  local waits = redis.call('HMGET', meta, 'owner', 'waits', 'claimed')
  claimed[#claimed + 1] = previous
  claimed[#claimed + 1] = waits[3] == previous and '' or '1'
  local left = (previous ~= ARGV[1] and redis.call('ZSCORE', KEYS[4], previous) or now) - now
  claimed[#claimed + 1] = math.max(0, math.min(left, ARGV[3]))  -- the clock may have stepped back
  local is_quiet = waits[2] and waits[2] ~= '' and redis.call('XLEN', chats .. chat .. ':inbox') == 0
  claimed[#claimed + 1] = is_quiet and waits[1] or ''
  claimed[#claimed + 1] = is_quiet and waits[2] or ''
  redis.call('ZADD', KEYS[1], now + ARGV[3], chat)
  redis.call('HSET', KEYS[2], chat, ARGV[1])
  if waits[1] then redis.call('HSET', meta, 'claimed', ARGV[1]) end  -- `take` removes it; an expired chat has no meta
end
if #due > 0 then redis.call('ZADD', KEYS[4], 'GT', now + ARGV[3], ARGV[1]) end
if redis.call('ZCOUNT', KEYS[1], '-inf', now) > 0 and redis.call('LLEN', KEYS[3]) == 0 then
  redis.call('LPUSH', KEYS[3], 'x')
end
return claimed
