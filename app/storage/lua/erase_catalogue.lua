-- KEYS   features, documents, counters, changes, behaviour
-- ARGV   ms for which it stays noted that it was deleted, 1 where its features stay
-- Result 1
-- Effect in one step: the arms go, and none is written from now on, also by whoever has not heard of it.
redis.call('UNLINK', unpack(KEYS, 1 + tonumber(ARGV[2])))
redis.call('HSET', KEYS[3], 'deleted', '1')
redis.call('PEXPIRE', KEYS[3], ARGV[1])
return 1
