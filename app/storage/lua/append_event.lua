-- WITH   event_log_size
-- KEYS   record, events, snapshot, size
-- ARGV   uid, expected number of events, event, bytes that were reserved for the log just now, or 0
-- Result 'appended', 'overtaken', 'missing' when there is no record that begins with the uid, or the bytes that the
--        log would take, when they are not reserved
-- Effect in one step: the event is appended if there are exactly as many as expected, and counted.
if string.sub(redis.call('GET', KEYS[1]) or '', 1, #ARGV[1]) ~= ARGV[1] then
  return 'missing'
end
if redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[2]) then
  return 'overtaken'
end
local events = event_bytes(KEYS[4]) + EVENT + rounded_up(#ARGV[3])
local bytes = too_large(KEYS[4], KEYS[1], events, redis.call('STRLEN', KEYS[3]), ARGV[4])
if bytes then
  return bytes
end
redis.call('HSET', KEYS[4], 'events', string.format('%.0f', events))
redis.call('RPUSH', KEYS[2], ARGV[3])
return 'appended'
