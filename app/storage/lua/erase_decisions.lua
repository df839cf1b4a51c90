-- WITH   ledger, waiting
-- KEYS   decisions, due, ledger
-- ARGV   members
-- Result 1
-- Effect in one step: these decisions are no longer waited for, nor counted.
for _, member in ipairs(ARGV) do
  wait_no_longer(KEYS[3], KEYS[1], KEYS[2], member)
end
return 1
