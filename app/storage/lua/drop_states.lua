-- KEYS   deleted, states, tails, folded, spaces, sums of arms
-- ARGV   uid, ms for which it stays noted that it was deleted
-- Result 1
-- Effect in one step: the learners go, and none is written from now on, also by whoever still folds rewards of the
--        bandit.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - tonumber(ARGV[2])))
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[6])
redis.call('HDEL', KEYS[4], ARGV[1], ARGV[1] .. ':replaced')
redis.call('HDEL', KEYS[5], ARGV[1], ARGV[1] .. ':log', ARGV[1] .. ':carried')
return 1
