-- KEYS   bandits, users of its catalogue, version of the registry, deleted, priors, versions of the bandit, its moves,
--        versions of its prior, when these were made, effects, versions of its effects, effects seen
-- ARGV   name, uid
-- Result 'deleted', 'missing', or 'in_use' when it is a bandit of another catalogue
-- Effect in one step: a record that begins with the uid is removed, with its versions, and the bandit no longer uses
--        the catalogue; that it is deleted is noted until nothing is left of it.
--        Naming another catalogue changes nothing: the right one could never be deleted again.
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record or string.sub(record, 1, #ARGV[2]) ~= ARGV[2] then
  return 'missing'
end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then
  return 'in_use'
end
redis.call('HSET', KEYS[4], ARGV[2], 'bandit')
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[2])
redis.call('DEL', KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[11])
redis.call('HDEL', KEYS[10], ARGV[2])
redis.call('HDEL', KEYS[12], ARGV[2])
redis.call('INCR', KEYS[3])
return 'deleted'
