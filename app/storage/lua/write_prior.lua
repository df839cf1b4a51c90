-- KEYS   bandits, priors, changes of priors, versions of the bandit's prior, when they were made
-- ARGV   name and uid of the bandit, number that is expected, ms when the version was made, its record, ms before which
--        a version that was replaced is in no row, most versions, most bytes
-- Result its number; 0 when the newest version is another than the expected one, nil when there is no such bandit
-- Effect in one step: if the newest version of the bandit is the expected one, the next one is stored, and the
--        number of changes that processes poll grows. Versions go that no row names, and the oldest beyond the most;
--        never the newest.
local bandit = redis.call('HGET', KEYS[1], ARGV[1])
if not bandit or string.sub(bandit, 1, #ARGV[2]) ~= ARGV[2] then
  return false
end
local current = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '0')
if current ~= tonumber(ARGV[3]) then
  return 0
end
local new = current + 1
redis.call('HSET', KEYS[4], new, ARGV[5])
redis.call('ZADD', KEYS[5], ARGV[4], new)
redis.call('HSET', KEYS[2], ARGV[2], new)
redis.call('INCR', KEYS[3])
local kept = redis.call('ZREVRANGE', KEYS[5], 0, -1, 'WITHSCORES')
local bytes, replaced = 0, math.huge
for i = 1, #kept, 2 do
  local number = kept[i]
  bytes = bytes + redis.call('HSTRLEN', KEYS[4], number)
  local is_named = replaced >= tonumber(ARGV[6])
  if i > 1 and (not is_named or (i + 1) / 2 > tonumber(ARGV[7]) or bytes > tonumber(ARGV[8])) then
    redis.call('HDEL', KEYS[4], number)
    redis.call('ZREM', KEYS[5], number)
  end
  replaced = tonumber(kept[i + 1])
end
return new
