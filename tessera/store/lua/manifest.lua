-- A generation's segments and tombstones together with the head they belong to.
-- KEYS: head, segments, tombstones. ARGV: format, generation, number of the first tombstone wanted.
-- Returns the head, then the number of the first tombstone given, segments (id, meta, ...), tombstones.

local head, refusal = read_head(KEYS[1], ARGV[1])
refusal = refusal or wrong_type(KEYS[2], 'hash') or wrong_type(KEYS[3], 'list')
if refusal then
  return refusal
end
if not live_of(head)[ARGV[2]] then
  return {'NONE'}
end
local trimmed = exact(redis.call('HGET', KEYS[1], 'trimmed:' .. ARGV[2]) or '0')
if not trimmed then
  return {'DAMAGED', KEYS[1], 'trimmed:' .. ARGV[2]}
end
local next_tombstone = trimmed + redis.call('LLEN', KEYS[3])
local first = math.min(math.max(tonumber(ARGV[3]), trimmed), next_tombstone)
local reply = answer(KEYS[1])
table.insert(reply, first)
table.insert(reply, redis.call('HGETALL', KEYS[2]))
table.insert(reply, redis.call('LRANGE', KEYS[3], digits(first - trimmed), '-1'))
return reply
