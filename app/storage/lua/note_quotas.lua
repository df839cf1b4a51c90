-- KEYS   quotas of all bandits, version of the registry
-- ARGV   uid of a bandit
-- Effect in one step: its quotas have changed, and so has the registry: every process reads them again.
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('INCR', KEYS[2])
