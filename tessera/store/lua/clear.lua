-- Empty a shard that its caller has just claimed; a new log begins.
-- KEYS: head; per live generation its tombstones; the keys to remove (the same tombstones may be among them).
-- ARGV: format, fence, standings (JSON), live generations in the order of their tombstones. Returns the head.

local FIRST_LIVE = 4
local HEAD, live = KEYS[1], #ARGV - FIRST_LIVE + 1

-- Numbers of tombstones go on rising: readers that have seen the old ones must not take new ones for them.
local function next_tombstones(fields)
  local following = {}
  for i = 1, live do
    local refusal = wrong_type(KEYS[1 + i], 'list')
    local field = 'trimmed:' .. ARGV[FIRST_LIVE + i - 1]
    local trimmed = exact(fields[field] or '0')
    if refusal or not trimmed then
      return nil, refusal or {'DAMAGED', HEAD, field}
    end
    following[field] = trimmed + redis.call('LLEN', KEYS[1 + i])
  end
  return following
end

local function trimmed_fields()
  local fields, held = {}, redis.call('HGETALL', HEAD)
  for i = 1, #held, 2 do
    if string.sub(held[i], 1, 8) == 'trimmed:' then
      fields[held[i]] = held[i + 1]
    end
  end
  return fields
end

local head, refusal = read_head(HEAD, ARGV[1])
refusal = refusal or check_fence(head, tonumber(ARGV[2]))
if refusal then
  return refusal
end
local fields = trimmed_fields()
local following
following, refusal = next_tombstones(fields)
if refusal then
  return refusal
end
for field in pairs(fields) do
  redis.call('HDEL', HEAD, field)
end
for field, number in pairs(following) do
  if number > 0 then
    redis.call('HSET', HEAD, field, digits(number))
  end
end
for i = 2, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
redis.call('HSET', HEAD, 'seq', digits(head.seq + 1), 'applied', '-1', 'record_digest', '', 'epoch',
  digits(head.epoch + 1), 'standings', ARGV[3])
return answer(HEAD)
