-- KEYS   log, watermark, forgotten, erase, idle
-- ARGV   bandit uid, learner, payload, now_ms, ttl_ms
-- Result the entry id, or nil when the learner lives on, or was forgotten meanwhile
-- Effect in one step: if the learner's time to live is over by now_ms, it is forgotten.
local bandit, learner, now = ARGV[1], ARGV[2], tonumber(ARGV[4])
local member = bandit .. '/' .. learner
local expires = redis.call('ZSCORE', KEYS[5], member)
if not expires or tonumber(expires) > now then
  return false
end
local entry = forget(KEYS[1], KEYS[2], KEYS[3], KEYS[4], bandit, learner, ARGV[3], now, tonumber(ARGV[5]))
redis.call('ZREM', KEYS[5], member)
return entry
