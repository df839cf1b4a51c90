-- KEYS   bandits, effects, changes of effects, versions of the effects of the bandit
-- ARGV   name and uid of the bandit, number that is expected, record, most versions, most bytes
-- Result its number; 0 when the newest version is another than the expected one, nil when there is no such bandit
-- Effect in one step: if the newest version of the bandit is the expected one, the next one is stored, and the
--        number of changes that processes poll grows. The oldest versions go beyond the most; never the newest.
local bandit = redis.call('HGET', KEYS[1], ARGV[1])
if not bandit or string.sub(bandit, 1, #ARGV[2]) ~= ARGV[2] then
  return false
end
local current = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '0')
if current ~= tonumber(ARGV[3]) then
  return 0
end
local new = current + 1
redis.call('HSET', KEYS[4], new, ARGV[4])
redis.call('HSET', KEYS[2], ARGV[2], new)
redis.call('INCR', KEYS[3])
local bytes = 0
for number = new, new - tonumber(ARGV[5]), -1 do
  local own = redis.call('HSTRLEN', KEYS[4], number)
  if own == 0 then -- the oldest go first, so there is no older one
    break
  end
  bytes = bytes + own
  if number < new and (new - number >= tonumber(ARGV[5]) or bytes > tonumber(ARGV[6])) then
    redis.call('HDEL', KEYS[4], number)
  end
end
return new
