-- Shared by every script that reads a shard's head; put in front of each.
-- Numbers are compared as doubles, so they must be integers within 2^53 - 1: exact() is nil for others.

local MAX_INTEGER = 9007199254740991
local SLICE = 1000 -- arguments of one call: unpack() of many thousands overflows Lua's C stack

local function exact(text)
  local number = type(text) == 'string' and string.match(text, '^%-?%d+$') and tonumber(text)
  return number and math.abs(number) <= MAX_INTEGER and number or nil
end

local function digits(number)
  return string.format('%.0f', number) -- tostring() would round beyond 14 digits
end

local function wrong_type(key, wanted)
  local held = redis.call('TYPE', key).ok
  if held ~= wanted and held ~= 'none' then
    return {'TYPE', key, held, wanted}
  end
end

-- The head as a table, or nil and a refusal.
local function read_head(key, format)
  local refusal = wrong_type(key, 'hash')
  if refusal then
    return nil, refusal
  end
  local held = redis.call('HMGET', key, 'format', 'fence', 'seq', 'applied', 'epoch', 'live', 'standings')
  if not held[1] then
    return nil, {'UNKNOWN'}
  end
  if held[1] ~= format then
    return nil, {'FORMAT', held[1]}
  end
  local head = {fence = exact(held[2]), seq = exact(held[3]), applied = exact(held[4]), epoch = exact(held[5]),
    live = held[6], standings = held[7]}
  for _, name in ipairs({'fence', 'seq', 'applied', 'epoch', 'live', 'standings'}) do
    if not head[name] then
      return nil, {'DAMAGED', key, name}
    end
  end
  return head
end

local function check_fence(head, given)
  if head.fence ~= given then
    return {head.fence > given and 'FENCED' or 'FENCE_LOST', head.fence, given}
  end
end

-- Live generations as a set.
local function live_of(head)
  local live = {}
  for _, name in ipairs(cjson.decode(head.live)) do
    live[name] = true
  end
  return live
end

local function answer(key)
  local reply = redis.call('HMGET', key, 'format', 'fence', 'seq', 'applied', 'record_digest', 'epoch', 'live',
    'standings')
  table.insert(reply, 1, 'OK')
  return reply
end
