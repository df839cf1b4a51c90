-- KEYS   events of a learner, then events
-- ARGV   for each event: its name, and the choice that was read
-- Result 1
-- Effect in one step: these choices are no longer kept, unless there is another one by now.
for e = 2, #KEYS do
  local name, choice = ARGV[2 * e - 3], ARGV[2 * e - 2]
  local current = redis.call('GET', KEYS[e])
  if not current or current == choice then
    redis.call('UNLINK', KEYS[e])
    redis.call('ZREM', KEYS[1], name)
  end
end
return 1
