-- KEYS   quotas of all bandits, version of the registry
-- ARGV   uid of a bandit
-- Result how often that was noted
-- Effect in one step: its quotas have changed, and so has the registry: every process reads what has changed.
redis.call('INCR', KEYS[2])
return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
