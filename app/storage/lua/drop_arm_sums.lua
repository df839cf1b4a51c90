-- WITH   many, arm_sums
-- KEYS   ledger, sums of the arms of a bandit
-- ARGV   for each arm: its name, the sums that were read
-- Result how many were removed
-- Effect in one step: the sums of each arm that are as they were read go.
local dropped = {}
for a = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[a]) == ARGV[a + 1] then
    dropped[#dropped + 1], dropped[#dropped + 2] = ARGV[a], ''
  end
end
write_sums(KEYS[1], KEYS[2], dropped)
return #dropped / 2
