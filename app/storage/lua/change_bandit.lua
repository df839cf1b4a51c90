-- KEYS   bandits, version of the registry, versions of the bandit; or catalogues, and the version of the registry
-- ARGV   name, record that the name has, record that it is to have; then a number of versions, for each its
--        number and its record; then the numbers of the versions to drop
-- Result the record that the name has now, or nil when there is no such bandit
-- Effect in one step: if the name has exactly that record, it gets the new one; versions that are not kept yet
--        are kept, and the others dropped; the version of the registry grows.
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found ~= ARGV[2] then
  return found
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
local last = 4 + 2 * tonumber(ARGV[4])
for i = 5, last, 2 do
  redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
  redis.call('HDEL', KEYS[3], ARGV[i])
end
redis.call('INCR', KEYS[2])
return ARGV[3]
