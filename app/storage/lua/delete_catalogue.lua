-- KEYS   catalogues, users of this catalogue, version of the registry, deleted, log of catalogues that changed
-- ARGV   name, uid
-- Result 'deleted', 'missing' or 'in_use'
-- Effect in one step: the record is removed if it begins with the uid and no bandit uses the catalogue; that it is
--        deleted is noted until nothing is left of it.
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record or string.sub(record, 1, #ARGV[2]) ~= ARGV[2] then
  return 'missing'
end
if redis.call('SCARD', KEYS[2]) > 0 then
  return 'in_use'
end
redis.call('HSET', KEYS[4], ARGV[2], 'catalogue')
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[3])
redis.call('ZREM', KEYS[5], ARGV[2])
return 'deleted'
