-- WITH   log_tail, forget
-- KEYS   log, watermark, forgotten, erase, idle, forgotten-until, exposures
-- ARGV   bandit uid, learner, payload, now_ms, ttl_ms
-- Result the entry id, or nil when the learner lives on, or was forgotten meanwhile
-- Effect in one step: if the learner's time to live is over by now_ms, it is forgotten, as forget.lua says.
local bandit, learner, now = ARGV[1], ARGV[2], tonumber(ARGV[4])
local expires = redis.call('ZSCORE', KEYS[5], bandit .. '/' .. learner)
if not expires or tonumber(expires) > now then
  return false
end
return forget(KEYS, bandit, learner, ARGV[3], now, tonumber(ARGV[5]))
