-- Move the release pointer by compare-and-set.
-- KEYS: release. ARGV: the new value, then the value expected, left out where there must be none.
-- Returns {'OK', 1}, or {'OK', 0} where the pointer is another.

local refusal = wrong_type(KEYS[1], 'string')
if refusal then
  return refusal
end
if redis.call('GET', KEYS[1]) ~= (ARGV[2] or false) then
  return {'OK', 0}
end
redis.call('SET', KEYS[1], ARGV[1])
return {'OK', 1}
