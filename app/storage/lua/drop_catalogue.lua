-- KEYS   features, documents, counters, changes
-- ARGV   ms for which to keep in mind that it was deleted
-- Result 1
-- Effect in one step: the arms go, and no other is taken from now on, from whoever has not heard of it.
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', KEYS[3], 'deleted', '1')
redis.call('PEXPIRE', KEYS[3], ARGV[1])
return 1
