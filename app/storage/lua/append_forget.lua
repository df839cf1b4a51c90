-- WITH   log_tail, forget
-- KEYS   log, watermark, forgotten, erase, idle, forgotten-until, exposures
-- ARGV   bandit uid, learner, payload, now_ms, ttl_ms
-- Result the entry id
-- Effect in one step: as forget.lua says.
return forget(KEYS, ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))
