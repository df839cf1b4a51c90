-- KEYS   the value
-- ARGV   value, ttl_ms or ''
-- Result the value that is there now
-- Effect in one step: the value is stored unless there is one (Redis 6.2 has no SET with both NX and GET).
local current = redis.call('GET', KEYS[1])
if current then
  return current
end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return ARGV[1]
