-- KEYS   catalogues, bandits, users of the catalogue, version of the registry, priors, changes of priors, versions of
--        its prior, when they were made
-- ARGV   catalogue, name, record, uid of the bandit; the first version of its prior, or '', and ms when it was made
-- Result the record that the name has now, or nil when there is no such catalogue
-- Effect in one step: if the catalogue exists and the name is free, the record is stored and the bandit is
--        entered among the users of the catalogue, with the version of its prior; the version of the registry grows.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return false
end
if redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3]) == 1 then
  redis.call('SADD', KEYS[3], ARGV[2])
  redis.call('INCR', KEYS[4])
  if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[5], ARGV[4], 1)
    redis.call('HSET', KEYS[7], 1, ARGV[5])
    redis.call('ZADD', KEYS[8], ARGV[6], 1)
    redis.call('INCR', KEYS[6])
  end
end
return redis.call('HGET', KEYS[2], ARGV[2])
