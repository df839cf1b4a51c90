-- KEYS   record, events
-- ARGV   uid, expected number of events, event
-- Result 'appended', 'overtaken', or 'missing' when there is no record that begins with the uid
-- Effect in one step: the event is appended if there are exactly as many as expected.
if string.sub(redis.call('GET', KEYS[1]) or '', 1, #ARGV[1]) ~= ARGV[1] then
  return 'missing'
end
if redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[2]) then
  return 'overtaken'
end
redis.call('RPUSH', KEYS[2], ARGV[3])
return 'appended'
