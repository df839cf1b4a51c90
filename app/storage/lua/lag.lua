-- KEYS   log, watermark, dead letters
-- Result {age in milliseconds of the oldest entry above the watermark, 0 without one; number of dead letters}
-- Effect none.
local oldest = redis.call('XRANGE', KEYS[1], '(' .. (redis.call('GET', KEYS[2]) or '0-0'), '+', 'COUNT', 1)[1]
local age = 0
if oldest then
  local time = redis.call('TIME')
  age = math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(string.match(oldest[1], '^%d+')))
end
return { age, redis.call('XLEN', KEYS[3]) }
