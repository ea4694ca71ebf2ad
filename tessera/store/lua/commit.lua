-- One atomic change of one shard. Redis does not roll back, so all of it is checked before the first write.
-- KEYS: head, documents, parts, deadletters, outbox, counters; per generation its segments and tombstones;
--       per standing likewise; the blobs to keep, to expire, to unlink.
-- ARGV: the plan (JSON: numbers, names, how many arguments belong to what), then its data in this order:
--       per generation the segments to add (id, watermark, meta), to drop (id), tombstones;
--       documents to set (key, value), to remove (key); parts likewise; dead letters (id, value); counters (name, amount).
-- Returns the new head, or a refusal and its details.

local plan = cjson.decode(ARGV[1])
local HEAD, DOCUMENTS, PARTS, DEADLETTERS, OUTBOX, COUNTERS = unpack(KEYS, 1, 6)

-- Ranges of KEYS or ARGV, both ends inclusive; an empty one ends before it begins.
local function taker(position)
  return function(count)
    local range = {first = position + 1, last = position + count}
    position = position + count
    return range
  end
end

local take_keys, take_args = taker(6), taker(1)

local function read_plan()
  for _, g in ipairs(plan.generations) do
    local keys = take_keys(2)
    g.segments_key, g.tombstones_key = KEYS[keys.first], KEYS[keys.last]
    g.adds, g.drops, g.deads = take_args(3 * g.add), take_args(g.drop), take_args(g.tombstones)
  end
  for _, standing in ipairs(plan.standings and plan.standings.of or {}) do
    local keys = take_keys(2)
    standing.segments_key, standing.tombstones_key = KEYS[keys.first], KEYS[keys.last]
  end
  plan.kept, plan.expired, plan.unlinked = take_keys(plan.keep), take_keys(plan.expire), take_keys(plan.unlink)
  plan.documents_set, plan.documents_removed = take_args(2 * plan.documents[1]), take_args(plan.documents[2])
  plan.parts_set, plan.parts_removed = take_args(2 * plan.parts[1]), take_args(plan.parts[2])
  plan.letters, plan.counted = take_args(2 * plan.deadletters), take_args(2 * plan.counters)
  if take_keys(0).last ~= #KEYS or take_args(0).last ~= #ARGV then
    return {'PLAN', #KEYS, #ARGV}
  end
end

local function check_head(head)
  local refusal = check_fence(head, plan.fence)
  if refusal then
    return refusal
  end
  if head.seq ~= plan.seq then
    return {'MOVED', head.seq}
  end
  local changes = plan.standings and plan.standings.live ~= head.live
  if changes and (plan.applied or #plan.generations > 0) then
    return {'ADOPTION', head.live}
  end
  if plan.applied and head.live ~= plan.live then
    return {'GENERATIONS', head.live}
  end
  local live = live_of(head)
  for _, g in ipairs(plan.generations) do
    if not live[g.name] then
      return {'GENERATIONS', head.live}
    end
  end
  if plan.after and plan.after ~= head.applied then
    return {'ELSEWHERE', head.applied}
  end
  if plan.applied and plan.applied <= head.applied then
    return {'NOT_RISING', head.applied}
  end
end

-- A generation that was given up and not removed yet would come back with its old segments, one that is
-- removed behind the back of whoever was told so.
local function check_adopted(head)
  local live = live_of(head)
  for _, new in ipairs(plan.standings and plan.standings.of or {}) do
    if not live[new.name] and redis.call('HEXISTS', HEAD, 'removed:' .. new.name) == 1 then
      return {'REMOVED', new.name}
    end
    if not live[new.name] and (redis.call('EXISTS', new.segments_key, new.tombstones_key) > 0
        or redis.call('HEXISTS', HEAD, 'trimmed:' .. new.name) == 1) then
      return {'LEFT_OVER', new.name}
    end
  end
end

local function check_types()
  local refusal = wrong_type(DOCUMENTS, 'hash') or wrong_type(PARTS, 'hash') or wrong_type(DEADLETTERS, 'hash')
    or wrong_type(OUTBOX, 'list') or wrong_type(COUNTERS, 'hash')
  for _, g in ipairs(plan.generations) do
    refusal = refusal or wrong_type(g.segments_key, 'hash') or wrong_type(g.tombstones_key, 'list')
  end
  return refusal
end

-- Tombstones below the new base are gone for good: every segment that stays must have counted them.
local function check_trim(g)
  local dropped = {}
  for i = g.drops.first, g.drops.last do
    dropped[ARGV[i]] = true
  end
  local held = redis.call('HGETALL', g.segments_key)
  for i = 1, #held, 2 do
    if not dropped[held[i]] and cjson.decode(held[i + 1]).watermark < g.trim then
      return {'TRIM', g.name, held[i], g.trim}
    end
  end
  for i = g.adds.first, g.adds.last, 3 do
    if tonumber(ARGV[i + 1]) < g.trim then
      return {'TRIM', g.name, ARGV[i], g.trim}
    end
  end
end

local function check_generation(g)
  local field = 'trimmed:' .. g.name
  g.trimmed = exact(redis.call('HGET', HEAD, field) or '0')
  if not g.trimmed then
    return {'DAMAGED', HEAD, field}
  end
  local next_tombstone = g.trimmed + redis.call('LLEN', g.tombstones_key)
  if next_tombstone ~= g.next then
    return {'TOMBSTONES', g.name, next_tombstone, g.next}
  end
  for i = g.drops.first, g.drops.last do
    if redis.call('HEXISTS', g.segments_key, ARGV[i]) == 0 then
      return {'MISSING', g.name, ARGV[i]}
    end
  end
  for i = g.adds.first, g.adds.last, 3 do
    if redis.call('HEXISTS', g.segments_key, ARGV[i]) == 1 then
      return {'TAKEN', g.name, ARGV[i]}
    end
  end
  return g.trim and check_trim(g)
end

local function check_blobs()
  for i = plan.kept.first, plan.kept.last do
    local held = redis.call('TYPE', KEYS[i]).ok
    if held ~= 'string' then
      return held == 'none' and {'GONE', i - plan.kept.first} or {'TYPE', KEYS[i], held, 'string'}
    end
  end
end

local function check_counters()
  for i = plan.counted.first, plan.counted.last, 2 do
    local held, amount = exact(redis.call('HGET', COUNTERS, ARGV[i]) or '0'), exact(ARGV[i + 1])
    if not held or not amount or math.abs(held + amount) > MAX_INTEGER then
      return {'COUNTER', ARGV[i]}
    end
  end
end

local function check()
  local refusal = read_plan()
  if refusal then
    return refusal
  end
  local head
  head, refusal = read_head(HEAD, plan.format)
  refusal = refusal or check_head(head) or check_types() or check_adopted(head)
  for _, g in ipairs(plan.generations) do
    refusal = refusal or check_generation(g)
  end
  return refusal or check_blobs() or check_counters()
end

local function in_slices(range, command, key)
  for i = range.first, range.last, SLICE do
    redis.call(command, key, unpack(ARGV, i, math.min(i + SLICE - 1, range.last)))
  end
end

local function write_generation(g)
  in_slices(g.drops, 'HDEL', g.segments_key)
  for i = g.adds.first, g.adds.last, 3 do
    redis.call('HSET', g.segments_key, ARGV[i], ARGV[i + 2])
  end
  in_slices(g.deads, 'RPUSH', g.tombstones_key)
  if g.trim and g.trim > g.trimmed then
    redis.call('LTRIM', g.tombstones_key, digits(g.trim - g.trimmed), '-1')
    redis.call('HSET', HEAD, 'trimmed:' .. g.name, digits(g.trim))
  end
end

local function write_blobs()
  for i = plan.kept.first, plan.kept.last do
    redis.call('PERSIST', KEYS[i])
  end
  for i = plan.expired.first, plan.expired.last do
    redis.call('EXPIRE', KEYS[i], plan.grace_s)
  end
  for i = plan.unlinked.first, plan.unlinked.last do
    redis.call('UNLINK', KEYS[i])
  end
end

-- A dead letter that is listed already is not sent a second time.
local function write_deadletters()
  for i = plan.letters.first, plan.letters.last, 2 do
    if redis.call('HSET', DEADLETTERS, ARGV[i], ARGV[i + 1]) == 1 then
      redis.call('RPUSH', OUTBOX, ARGV[i])
    end
  end
end

local refusal = check()
if refusal then
  return refusal
end
write_blobs()
in_slices(plan.documents_set, 'HSET', DOCUMENTS)
in_slices(plan.documents_removed, 'HDEL', DOCUMENTS)
in_slices(plan.parts_set, 'HSET', PARTS)
in_slices(plan.parts_removed, 'HDEL', PARTS)
for _, g in ipairs(plan.generations) do
  write_generation(g)
end
write_deadletters()
for i = plan.counted.first, plan.counted.last, 2 do
  redis.call('HINCRBY', COUNTERS, ARGV[i], ARGV[i + 1])
end
if plan.applied then
  redis.call('HSET', HEAD, 'applied', digits(plan.applied), 'record_digest', plan.digest)
end
if plan.standings then
  redis.call('HSET', HEAD, 'live', plan.standings.live, 'standings', plan.standings.json)
end
redis.call('HSET', HEAD, 'seq', digits(plan.seq + 1))
return answer(HEAD)
