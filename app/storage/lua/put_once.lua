-- KEYS   the word
-- ARGV   value, ttl_ms or ''
-- Result the value that now stands
-- Effect in one step: the value is stored unless there is one (Redis 6.2 has no SET with both NX and GET).
local standing = redis.call('GET', KEYS[1])
if standing then
  return standing
end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return ARGV[1]
