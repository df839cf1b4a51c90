-- KEYS   log, watermark, forgotten
-- ARGV   bandit uid, learner, payload, now_ms, ttl_ms
-- Result the entry id
-- Effect in one step: the entry is appended, and rewards of decisions up to now_ms are refused for ttl_ms.
--        Repeated with the same now_ms it gives the same entry: another one would also wipe what came since.
local log, forgotten = KEYS[1], KEYS[3]
local bandit, learner, payload, now, ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local before, entry = string.match(redis.call('GET', forgotten) or '', '^(%d+) (.+)$')
if before and tonumber(before) == now then
  return entry
end
entry = redis.call('XADD', log, next_id(log, KEYS[2])(), 'b', bandit, 'l', learner, 'f', '1', 'p', payload)
local until_ms = math.max(now, tonumber(before or 0))
local keep = math.max(ttl, redis.call('PTTL', forgotten))
redis.call('SET', forgotten, string.format('%.0f %s', until_ms, entry), 'PX', string.format('%.0f', keep))
return entry
