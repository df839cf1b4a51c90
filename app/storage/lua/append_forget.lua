-- KEYS   log, watermark, forgotten, erase, idle
-- ARGV   bandit uid, learner, payload, now_ms, ttl_ms
-- Result the entry id
-- Effect in one step: as forget.lua says; and the learner no longer has a time to live.
local bandit, learner = ARGV[1], ARGV[2]
local entry =
  forget(KEYS[1], KEYS[2], KEYS[3], KEYS[4], bandit, learner, ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))
redis.call('ZREM', KEYS[5], bandit .. '/' .. learner)
return entry
