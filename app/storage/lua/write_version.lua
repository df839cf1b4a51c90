-- KEYS   bandits, newest versions of all bandits, changes of them, versions of the bandit; of a learned prior when
--        they were made
-- ARGV   name and uid of the bandit, number that is expected, record, most versions, most bytes; of a learned prior ms
--        when it was made, ms before which a version that was replaced is in no row
-- Result its number; 0 when the newest version is another than the expected one, nil when there is no such bandit
-- Effect in one step: if the newest version of the bandit is the expected one, the next one is stored, and the
--        number of changes that processes poll grows. Versions go that no row names, and the oldest beyond the most;
--        never the newest. Versions of arm effects: those beyond the most.
local bandit = redis.call('HGET', KEYS[1], ARGV[1])
if not bandit or string.sub(bandit, 1, #ARGV[2]) ~= ARGV[2] then
  return false
end
local current = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '0')
if current ~= tonumber(ARGV[3]) then
  return 0
end
local new, times = current + 1, KEYS[5]
redis.call('HSET', KEYS[4], new, ARGV[4])
if times then
  redis.call('ZADD', times, ARGV[7], new)
end
redis.call('HSET', KEYS[2], ARGV[2], new)
redis.call('INCR', KEYS[3])
local bytes, is_named = 0, true
for number = new, 1, -1 do
  local own = redis.call('HSTRLEN', KEYS[4], number)
  if own == 0 then -- the oldest go first, so there is no older one
    break
  end
  bytes = bytes + own
  local made = times and tonumber(redis.call('ZSCORE', times, number))
  if number < new and (not is_named or new - number >= tonumber(ARGV[5]) or bytes > tonumber(ARGV[6])) then
    redis.call('HDEL', KEYS[4], number)
    if times then
      redis.call('ZREM', times, number)
    end
  end
  is_named = not times or (made or 0) >= tonumber(ARGV[8]) -- the one before, until this one replaced it
end
return new
