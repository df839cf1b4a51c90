-- WITH   arm_sums
-- KEYS   ledger, sums of the arms of a bandit
-- ARGV   for each arm: its name, the sums that were read
-- Result how many were removed
-- Effect in one step: the sums of each arm that are as they were read go.
local removed = 0
for a = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[a]) == ARGV[a + 1] then
    write_sums(KEYS[1], KEYS[2], ARGV[a], '')
    removed = removed + 1
  end
end
return removed
