-- KEYS   workers
-- ARGV   name, lease_ms
-- Result the names of all workers whose lease has not run out, this one's among them
-- Effect in one step: this worker's lease is renewed, and those that ran out are dropped. So is one that begins
--        in the future: the server's clock was set back, and it would never run out.
local time = redis.call('TIME')
local now, lease = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - lease))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf')
return redis.call('ZRANGE', KEYS[1], 0, -1)
