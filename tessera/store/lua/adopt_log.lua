-- Begin a new log: nothing applied, one epoch on; the old writer is fenced and its commits are out of sequence.
-- KEYS: head. ARGV: format. Returns the head.

local head, refusal = read_head(KEYS[1], ARGV[1])
if refusal then
  return refusal
end
redis.call('HSET', KEYS[1], 'fence', digits(head.fence + 1), 'seq', digits(head.seq + 1), 'applied', '-1',
  'record_digest', '', 'epoch', digits(head.epoch + 1))
return answer(KEYS[1])
