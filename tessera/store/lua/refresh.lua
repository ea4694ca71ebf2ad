-- Start the expiry of staged blobs anew; a blob that a commit has kept stays for good.
-- KEYS: blobs. ARGV: seconds. Returns for each blob 1, or 0 where it is gone.

local reply = {}
for i, blob in ipairs(KEYS) do
  local left = redis.call('PTTL', blob)
  if left >= 0 then
    redis.call('EXPIRE', blob, ARGV[1])
  end
  reply[i] = left == -2 and 0 or 1
end
return reply
