-- Remove one dead letter: its description, its place in the outbox, its bytes.
-- KEYS: deadletters, outbox, blob. ARGV: id. Returns {'OK', 1}, or {'OK', 0} where there was none.

local refusal = wrong_type(KEYS[1], 'hash') or wrong_type(KEYS[2], 'list')
if refusal then
  return refusal
end
redis.call('LREM', KEYS[2], '0', ARGV[1])
redis.call('UNLINK', KEYS[3])
return {'OK', redis.call('HDEL', KEYS[1], ARGV[1])}
