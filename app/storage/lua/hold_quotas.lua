-- KEYS   held, held-until
-- ARGV   decision, what it took of quotas (msgpack of {quota, uid, window, count, whether
--        it is limited} ..), when it expires in ms, most held
-- Result 1; 0 when as many decisions are held as may be
-- Effect in one step: it is known what is given back if the decision expires without being activated.
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 1
