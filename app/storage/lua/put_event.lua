-- KEYS   event, events of its learner
-- ARGV   name of the event, value, ttl_ms
-- Result the value that is there now
-- Effect in one step: the value is stored unless there is one, and its name is kept with its learner's.
local current = redis.call('GET', KEYS[1])
if current then
  return current
end
local time = redis.call('TIME')
local now, ttl = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ttl), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now))
-- the list of a learner's events lives as long as the last of them
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(ttl, redis.call('PTTL', KEYS[2]))))
return ARGV[2]
