#!lua flags=no-writes
-- inbox: return the first commands of an inbox after an id, bounded by their number and by their size.
-- KEYS inbox
-- ARGV after limit max_bytes     (after: '-' for the beginning)
-- Repeat: the same answer. Returns the entries: at least one if any follows the id, even if it exceeds max_bytes.
local from, limit, max = ARGV[1] == '-' and '-' or '(' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local entries, size = {}, 0
repeat
  local found = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not found then break end
  entries[#entries + 1] = found
  size = size + #(found[2][6] or '')
  from = '(' .. found[1]
until #entries >= limit or size >= max
return entries
