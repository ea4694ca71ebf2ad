-- Remove some segments of a generation that is not live; with the last one, all else that is of it: from then
-- on the shard refuses to adopt it.
-- KEYS: head, segments, tombstones, counters, the blobs of the segments to remove.
-- ARGV: format, fence, generation, how counters of it begin (four), ids of the segments to remove.
-- Returns {'OK', how many segments are left}.

local FIRST_BLOB, FIRST_COUNTER, FIRST_ID = 5, 4, 8

local function check()
  local head, refusal = read_head(KEYS[1], ARGV[1])
  refusal = refusal or check_fence(head, tonumber(ARGV[2]))
  if refusal then
    return refusal
  end
  if live_of(head)[ARGV[3]] then
    return {'LIVE', ARGV[3]}
  end
  return wrong_type(KEYS[2], 'hash') or wrong_type(KEYS[3], 'list') or wrong_type(KEYS[4], 'hash')
end

local function remove_counters()
  for _, name in ipairs(redis.call('HKEYS', KEYS[4])) do
    for i = FIRST_COUNTER, FIRST_ID - 1 do
      if string.sub(name, 1, #ARGV[i]) == ARGV[i] then
        redis.call('HDEL', KEYS[4], name)
      end
    end
  end
end

local refusal = check()
if refusal then
  return refusal
end
for i = FIRST_ID, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[i])
end
for i = FIRST_BLOB, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
local left = redis.call('HLEN', KEYS[2])
if left == 0 then
  redis.call('UNLINK', KEYS[3])
  redis.call('HDEL', KEYS[1], 'trimmed:' .. ARGV[3])
  redis.call('HSET', KEYS[1], 'removed:' .. ARGV[3], '1')
  remove_counters()
end
return {'OK', left}
