#!lua flags=allow-oom
-- dead_drop: delete the dead letters of a chat from a part of the list, before the chat is deleted.
-- KEYS dead
-- ARGV chat first last     (negative: counted from the newest letter)
-- Repeat: changes nothing. Returns {number of letters in this part, number of letters kept}.
local mine, kept = '{"chat_id":"' .. ARGV[1] .. '",', 0
local letters = redis.call('LRANGE', KEYS[1], ARGV[2], ARGV[3])
for _, letter in ipairs(letters) do
  if string.sub(letter, 1, #mine) == mine then redis.call('LREM', KEYS[1], -1, letter) else kept = kept + 1 end
end
return {#letters, kept}
