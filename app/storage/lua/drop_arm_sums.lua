-- KEYS   sums of the arms of a bandit
-- ARGV   for each arm: its name, the sums that were read
-- Result how many were removed
-- Effect in one step: the sums of each arm that are as they were read go.
local dropped = 0
for a = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[a]) == ARGV[a + 1] then
    dropped = dropped + redis.call('HDEL', KEYS[1], ARGV[a])
  end
end
return dropped
