-- KEYS   log, watermark
-- Result number of entries above the watermark
-- Effect none. Entry ids end in a gapless count, so the two newest numbers are enough.
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest then
  return 0
end
local folded = redis.call('GET', KEYS[2]) or '0-0'
return math.max(0, tonumber(string.match(newest[1], '%d+$')) - tonumber(string.match(folded, '%d+$')))
