-- KEYS   bytes of event logs: '<kind> <name> <uid>' -> how many are reserved for it, 'all' -> their sum
-- ARGV   the log, bytes, most bytes of all
-- Result 1 when that many are reserved for it now, 0 when there is no space
-- Effect in one step: what is reserved for the log becomes so many bytes; 0 ends it. Repeated, it changes nothing.
local before = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
local more = tonumber(ARGV[2]) - before
if more > 0 and tonumber(redis.call('HGET', KEYS[1], 'all') or '0') + more > tonumber(ARGV[3]) then
  return 0
end
if more ~= 0 then
  redis.call('HINCRBY', KEYS[1], 'all', string.format('%.0f', more))
  if ARGV[2] == '0' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  end
end
return 1
