-- KEYS   sums of the arms of a bandit
-- ARGV   field of what was merged, what it has now, then for each field that goes into it: its name, what was read, or ''
-- Result 1, or 0 when any of them is not as it was read
-- Effect in one step: the fields go, and the first one has what takes their place.
for a = 3, #ARGV, 2 do
  if (redis.call('HGET', KEYS[1], ARGV[a]) or '') ~= ARGV[a + 1] then
    return 0
  end
end
for a = 3, #ARGV, 2 do
  redis.call('HDEL', KEYS[1], ARGV[a])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
