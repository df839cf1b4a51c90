-- KEYS   features, changes
-- ARGV   arm and the version of its last change, for each
-- Result 1
-- Effect arms that are deleted and did not change since leave the order of changes
for a = 1, #ARGV, 2 do
  local noted = redis.call('ZSCORE', KEYS[2], ARGV[a])
  if noted and tonumber(noted) == tonumber(ARGV[a + 1]) and redis.call('HEXISTS', KEYS[1], ARGV[a]) == 0 then
    redis.call('ZREM', KEYS[2], ARGV[a])
  end
end
return 1
