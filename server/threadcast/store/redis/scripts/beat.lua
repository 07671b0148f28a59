#!lua flags=allow-oom
-- beat: renew the leases of chats of one bucket, and look for commands whose inbox signal was lost.
-- KEYS due own owners inbox...
-- ARGV worker lease_ms chat...     (chat i belongs to the inbox i)
-- Repeat: the same effect. Returns a letter for each chat: '.' if this worker owns the chat and its inbox is empty, 'M'
-- if this worker owns the chat and its inbox is not empty, 'L' if this worker does not own the chat.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer, owns = {}, false
for i = 3, #ARGV do
  if redis.call('HGET', KEYS[2], ARGV[i]) ~= ARGV[1] then
    answer[#answer + 1] = 'L'
  else
    redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[i])
    owns = true
    answer[#answer + 1] = redis.call('XLEN', KEYS[i + 1]) > 0 and 'M' or '.'
  end
end
if owns then redis.call('ZADD', KEYS[3], 'GT', now + ARGV[2], ARGV[1]) end
return table.concat(answer)
