-- WITH   ledger
-- KEYS   event, events of its learner, ledger
-- ARGV   name of the event, value, ttl_ms, most bytes of events
-- Result the value that was there before, or the bytes of events that are held now, or 0 when there is no space
-- Effect in one step: the value is stored unless there is one, its name is kept with its learner's, and its bytes
--        are counted.
local EVENT = 400 -- bytes that an event takes besides its key, its name and its value; see docs/limits.md
local current = redis.call('GET', KEYS[1])
if current then
  return current
end
local now, ttl = server_ms(), tonumber(ARGV[3])
local bytes = EVENT + #KEYS[1] + #ARGV[1] + rounded_up(#ARGV[2])
if not has_space(KEYS[3], 'events', bytes, ARGV[4], now) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ttl), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now))
-- the list of a learner's events lives as long as the last of them
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(ttl, redis.call('PTTL', KEYS[2]))))
return count(KEYS[3], 'events', bytes, period_of(now + ttl))
