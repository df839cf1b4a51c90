-- KEYS   catalogues, bandits, users of the catalogue, version of the registry
-- ARGV   catalogue, name, record
-- Result the record that the name has now, or nil when there is no such catalogue
-- Effect in one step: if the catalogue exists and the name is free, the record is stored and the bandit is
--        entered among the users of the catalogue; the version of the registry grows.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return false
end
if redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3]) == 1 then
  redis.call('SADD', KEYS[3], ARGV[2])
  redis.call('INCR', KEYS[4])
end
return redis.call('HGET', KEYS[2], ARGV[2])
