-- KEYS   catalogues, version of the registry
-- ARGV   name, record
-- Result the record that the name has now
-- Effect in one step: the record is stored if the name is free, and the version of the registry grows.
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 1 then
  redis.call('INCR', KEYS[2])
end
return redis.call('HGET', KEYS[1], ARGV[1])
