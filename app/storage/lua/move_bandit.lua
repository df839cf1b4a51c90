-- KEYS   bandits, version of the registry, versions of the bandit, catalogues, users of the catalogue that it leaves,
--        users of the one that it joins, moves of the bandit, priors, changes of priors, versions of its prior, when
--        they were made, catalogues that were left
-- ARGV   the catalogue that it joins, its uid, number of the move, record of the move, uid of the bandit, uid of
--        the catalogue that it leaves, ms until which features of that are needed; number of a version of its prior, ms
--        when it was made, and the version, or ''; then as change_bandit.lua
-- Result the record that the name has now, or nil when there is no such bandit, or '' when the catalogue is gone
-- Effect in one step: as change_bandit.lua; the bandit uses the other catalogue, the move is kept, and the version
--        of its prior is stored if it is the next one.
local found = redis.call('HGET', KEYS[1], ARGV[11])
if found ~= ARGV[12] then
  return found
end
local catalogue = redis.call('HGET', KEYS[4], ARGV[1])
if not catalogue or string.sub(catalogue, 1, #ARGV[2]) ~= ARGV[2] then
  return ''
end
redis.call('HSET', KEYS[1], ARGV[11], ARGV[13])
local last = 14 + 2 * tonumber(ARGV[14])
for i = 15, last, 2 do
  redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
  redis.call('HDEL', KEYS[3], ARGV[i])
end
redis.call('SREM', KEYS[5], ARGV[11])
redis.call('SADD', KEYS[6], ARGV[11])
redis.call('HSET', KEYS[7], ARGV[3], ARGV[4])
redis.call('HSET', KEYS[12], ARGV[6], ARGV[7])
if ARGV[10] ~= '' and tonumber(redis.call('HGET', KEYS[8], ARGV[5]) or '0') + 1 == tonumber(ARGV[8]) then
  redis.call('HSET', KEYS[8], ARGV[5], ARGV[8])
  redis.call('HSET', KEYS[10], ARGV[8], ARGV[10])
  redis.call('ZADD', KEYS[11], ARGV[9], ARGV[8])
  redis.call('INCR', KEYS[9])
end
redis.call('INCR', KEYS[2])
return ARGV[13]
