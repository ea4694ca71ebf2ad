-- Take a shard's fence; a shard that is not there yet begins with the generations given.
-- KEYS: head. ARGV: format, live generations (JSON), least fence, their standings (JSON). Returns the head.

local head, refusal = read_head(KEYS[1], ARGV[1])
if refusal and refusal[1] ~= 'UNKNOWN' then
  return refusal
end
if head then
  redis.call('HSET', KEYS[1], 'fence', digits(math.max(head.fence + 1, tonumber(ARGV[3]))))
else
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'fence', digits(math.max(1, tonumber(ARGV[3]))), 'seq', '0',
    'applied', '-1', 'record_digest', '', 'epoch', '0', 'live', ARGV[2], 'standings', ARGV[4])
end
return answer(KEYS[1])
