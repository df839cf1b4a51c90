-- KEYS   stem of the retired keys
-- ARGV   revisions
-- Result for how many ms more the features of each are kept that were replaced or deleted; negative: they are not
-- Effect none
-- The retired keys are built from a declared key with the same hash tag: upsert_arms.lua.
local left = {}
for i = 1, #ARGV do
  left[i] = redis.call('PTTL', KEYS[1] .. ARGV[i])
end
return left
