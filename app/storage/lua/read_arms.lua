-- KEYS   features, documents
-- ARGV   ids of arms
-- Result {features of each arm, document of each arm}; nil for what is not there
-- Effect none
return { redis.call('HMGET', KEYS[1], unpack(ARGV)), redis.call('HMGET', KEYS[2], unpack(ARGV)) }
