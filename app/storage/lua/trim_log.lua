-- KEYS   log, watermark
-- ARGV   before_ms
-- Result number of entries dropped
-- Effect in one step: entries at or below the watermark and older than before_ms are dropped.
local ms, n = string.match(redis.call('GET', KEYS[2]) or '0-0', '^(%d+)-(%d+)$')
local least = ARGV[1] .. '-0'
if tonumber(ms) < tonumber(ARGV[1]) then
  least = string.format('%s-%.0f', ms, tonumber(n) + 1)
end
return redis.call('XTRIM', KEYS[1], 'MINID', '=', least)
