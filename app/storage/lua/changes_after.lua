-- KEYS   changes
-- ARGV   version, arm, most, newest version or ''
-- Result the first `most` changes after that position, in their order: {arm, version, ...}
-- Effect none
-- Members of one score stand in the order of their bytes; Lua itself compares by the locale.
local changes, version, arm = KEYS[1], ARGV[1], ARGV[2]
local function is_after(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end
local first = redis.call('ZCOUNT', changes, '-inf', '(' .. version)
local last = redis.call('ZCOUNT', changes, '-inf', version)
while first < last do
  local middle = math.floor((first + last) / 2)
  if is_after(redis.call('ZRANGE', changes, middle, middle)[1], arm) then
    last = middle
  else
    first = middle + 1
  end
end
local stop = first + tonumber(ARGV[3])
if ARGV[4] ~= '' then
  stop = math.min(stop, redis.call('ZCOUNT', changes, '-inf', ARGV[4]))
end
if stop <= first then
  return {}
end
return redis.call('ZRANGE', changes, first, stop - 1, 'WITHSCORES')
