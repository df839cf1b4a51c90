-- KEYS   what a key has had: members '<name>:<value>', by when in ms
-- ARGV   within_ms, most of each value or 0 for any number, most members, then pairs of a name and a value
-- Result {whether it was written, the time in ms, the members that count now and their times ..}
-- Effect in one step: the values are had as well, each under its name, if none of them was had so often; the oldest
--        members go where there are too many. Repeated with the same names it changes nothing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local within, most = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - within))
local function members()
  return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
end
if most > 0 and #ARGV > 3 then
  local counts, known, there = {}, {}, members()
  for place = 1, #there, 2 do
    local value = string.match(there[place], '^[^:]*:(.*)$')
    counts[value], known[there[place]] = (counts[value] or 0) + 1, true
  end
  for place = 4, #ARGV, 2 do
    local name, value = ARGV[place], ARGV[place + 1]
    if not known[name .. ':' .. value] then
      counts[value] = (counts[value] or 0) + 1
      if counts[value] > most then
        return { 0, now, unpack(there) }
      end
    end
  end
end
for place = 4, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now), ARGV[place] .. ':' .. ARGV[place + 1])
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - tonumber(ARGV[3]))
if #ARGV > 3 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return { 1, now, unpack(members()) }
