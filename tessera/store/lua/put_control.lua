-- Write registry and release pointer by compare-and-set of the registry's version.
-- KEYS: registry, release. ARGV: the version expected, registry, release.
-- Returns {'OK', 1}, or {'OK', 0} where the version is another.

local refusal = wrong_type(KEYS[1], 'hash') or wrong_type(KEYS[2], 'string')
if refusal then
  return refusal
end
local version = exact(redis.call('HGET', KEYS[1], 'version') or '0')
if not version then
  return {'DAMAGED', KEYS[1], 'version'}
end
if version ~= tonumber(ARGV[1]) then
  return {'OK', 0}
end
redis.call('HSET', KEYS[1], 'version', digits(version + 1), 'registry', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3])
return {'OK', 1}
