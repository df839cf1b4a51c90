-- KEYS   what a key was shown: a sorted set of '<name>:<value>', by when in ms
-- ARGV   within_ms, most of each value or 0 for any number, most members, what the store has room for: 2 all, 1 what a
--        key is shown that was shown something, 0 what takes the place of that; then pairs of a name and a value
-- Result {whether it may be shown, whether all of it is remembered, the time in ms, the members that count now and their
--        times ..}
-- Effect in one step: the values were shown as well, each under its name, if none of them was shown so often. The oldest
--        members go where there are too many. Repeated with the same names it changes nothing.
local exposures, time = KEYS[1], redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local within, most, kept, room = unpack(ARGV, 1, 4)
local from = string.format('%.0f', now - within)
local there = redis.call('ZRANGEBYSCORE', exposures, '(' .. from, '+inf', 'WITHSCORES')
local names, counts, known = {}, {}, {}
for place = 1, #there, 2 do
  local name = there[place]
  local value = string.match(name, '^[^:]*:(.*)$')
  names[#names + 1], counts[value], known[name] = name, (counts[value] or 0) + 1, true
end
local before = #names
for place = 5, #ARGV, 2 do
  local value = ARGV[place + 1]
  local name = ARGV[place] .. ':' .. value
  if not known[name] then
    counts[value] = (counts[value] or 0) + 1
    if tonumber(most) > 0 and counts[value] > tonumber(most) then
      return { 0, 1, now, unpack(there) }
    end
    names[#names + 1], known[name] = name, true
  end
end
if #names == before then
  return { 1, 1, now, unpack(there) }
end
if before == 0 and room ~= '2' then
  return { 1, 0, now }
end
local most_names = room == '0' and math.min(before, tonumber(kept)) or tonumber(kept)
local first = math.max(1, #names - most_names + 1)
for place = math.max(first, before + 1), #names do -- first: a server without memory refuses it
  redis.call('ZADD', exposures, string.format('%.0f', now), names[place])
end
redis.call('ZREMRANGEBYSCORE', exposures, '-inf', from)
for place = 1, math.min(first - 1, before) do
  redis.call('ZREM', exposures, names[place])
end
redis.call('PEXPIRE', exposures, within)
local shown = redis.call('ZRANGE', exposures, 0, -1, 'WITHSCORES')
return { 1, room == '0' and 0 or 1, now, unpack(shown) }
