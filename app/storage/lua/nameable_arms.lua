-- KEYS   features, stem of the retired keys
-- ARGV   for each arm: id, revision
-- Result for each 1 when it is there, or its features of that revision are still kept; else 0
-- Effect none
-- The retired keys are built from a declared key with the same hash tag: upsert_arms.lua.
local found = {}
for a = 1, #ARGV, 2 do
  local is_there = redis.call('HEXISTS', KEYS[1], ARGV[a]) == 1 or redis.call('EXISTS', KEYS[2] .. ARGV[a + 1]) == 1
  found[#found + 1] = is_there and 1 or 0
end
return found
