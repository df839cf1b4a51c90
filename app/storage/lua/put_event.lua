-- KEYS   event, events of its learner
-- ARGV   name of the event, value, now_ms, ttl_ms
-- Result the value that was there before, or nil when this one was stored
-- Effect in one step: the value is stored unless there is one, and its name is kept with its learner's.
local current = redis.call('GET', KEYS[1])
if current then
  return current
end
local now, ttl = tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ttl), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now))
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(ttl, redis.call('PTTL', KEYS[2]))))
return false
