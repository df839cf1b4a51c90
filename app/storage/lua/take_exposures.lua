-- WITH   ledger, exposures
-- KEYS   what a key was shown (exposures.lua), ledger
-- ARGV   within_ms, most of each value or 0 for any number, most members, most bytes of what keys were shown: of a key
--        that was shown something, and of another; then pairs of a name and a value
-- Result {whether it may be shown, whether all of it is remembered, the bytes that are held now or 0 if nothing was
--        written, the time in ms, the members that count now and their times ..}
-- Effect in one step: the values were shown as well, each under its name, if none of them was shown so often, and
--        counted. Where there is no space, of a key that was shown something it takes the place of the oldest, and of
--        another nothing is remembered. The oldest members go where there are too many. Repeated with the same names
--        it changes nothing.
local exposures, ledger, now = KEYS[1], KEYS[2], server_ms()
local within, most, kept = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local from = string.format('%.0f', now - within)
local there = redis.call('ZRANGEBYSCORE', exposures, '(' .. from, LAST_MS, 'WITHSCORES')
if #ARGV == 5 then
  return { 1, 1, 0, now, unpack(there) }
end

local names, counts, known = {}, {}, {}
for place = 1, #there, 2 do
  local name = there[place]
  local value = string.match(name, '^[^:]*:(.*)$')
  names[#names + 1], counts[value], known[name] = name, (counts[value] or 0) + 1, true
end
local before, new = #names, {}
for place = 6, #ARGV, 2 do
  local value = ARGV[place + 1]
  local name = ARGV[place] .. ':' .. value
  if not known[name] then
    counts[value] = (counts[value] or 0) + 1
    if most > 0 and counts[value] > most then
      return { 0, 1, 0, now, unpack(there) }
    end
    names[#names + 1], known[name] = name, true
  end
end

-- The bytes of the names from a place to another.
local function bytes_of(first, last)
  local chars, longest = 0, 0
  for place = first, last do
    chars, longest = chars + #names[place], math.max(longest, #names[place])
  end
  return bytes_of_exposures(exposures, last - first + 1, chars, longest)
end

local function has_room(bytes, counted)
  return bytes <= counted or has_space(ledger, 'repeats', bytes - counted, ARGV[before > 0 and 4 or 5], now)
end

held(ledger, 'repeats', now)
local counted, until_period = counted_for(ledger, exposures)
local first = math.max(1, #names - kept + 1)
local is_whole = 1
if not has_room(bytes_of(first, #names), counted) then
  if before == 0 then
    return { 1, 0, 0, now }
  end
  local most_bytes, last = math.max(counted, bytes_of(1, before)), #names
  is_whole = 0
  while first < last do -- the first place from which on there is room
    local middle = math.floor((first + last) / 2)
    if bytes_of(middle, #names) > most_bytes then
      first = middle + 1
    else
      last = middle
    end
  end
end
redis.call('ZADD', exposures, LAST_MS, COUNTED) -- first: a server without memory refuses it
redis.call('ZREMRANGEBYSCORE', exposures, '-inf', from)
for place = 1, math.min(first - 1, before) do
  redis.call('ZREM', exposures, names[place]) -- before any is added: else a block could become a tree
end
for place = math.max(first, before + 1), #names do
  redis.call('ZADD', exposures, string.format('%.0f', now), names[place])
end
redis.call('PEXPIRE', exposures, ARGV[1])
if counted > 0 then
  count(ledger, 'repeats', -counted, until_period)
end
local period = period_of(now + within)
local bytes = bytes_of(first, #names)
if is_tree(exposures) then -- one that was larger before still takes more; the server may not tell
  -- Of all members: by default the server takes the first five for an average, which was a tenth too little.
  bytes = math.max(bytes, math.floor((tonumber(redis.pcall('MEMORY', 'USAGE', exposures, 'SAMPLES', 0)) or 0) * 17 / 16))
end
redis.call('ZADD', exposures, string.format('%.0f', period * SHIFT + bytes), COUNTED)
local all_held = count(ledger, 'repeats', bytes, period)
return { 1, is_whole, all_held, now, unpack(redis.call('ZRANGEBYSCORE', exposures, '-inf', LAST_MS, 'WITHSCORES')) }
