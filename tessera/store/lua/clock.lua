-- The clock of the server that holds the control record. KEYS: release. Returns seconds and microseconds.

return redis.call('TIME')
