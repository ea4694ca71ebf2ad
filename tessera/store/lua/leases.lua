-- Leases of searchers by the server's clock: forget those that have run out, keep a new one, list the rest.
-- KEYS: readers. ARGV: nothing, or searcher, lease, milliseconds. Returns OK, then searcher, lease, ...

local refusal = wrong_type(KEYS[1], 'hash')
if refusal then
  return refusal
end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
if ARGV[1] then
  redis.call('HSET', KEYS[1], ARGV[1], digits(now + tonumber(ARGV[3])) .. ' ' .. ARGV[2])
end
local reply, last = {'OK'}, 0
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  local ends, lease = string.match(held[i + 1], '^(%d+) (.*)$')
  if not ends then
    return {'DAMAGED', KEYS[1], held[i]}
  end
  ends = tonumber(ends)
  if ends <= now then
    redis.call('HDEL', KEYS[1], held[i])
  else
    last = math.max(last, ends)
    table.insert(reply, held[i])
    table.insert(reply, lease)
  end
end
if ARGV[1] then
  redis.call('PEXPIREAT', KEYS[1], digits(last))
end
return reply
