-- KEYS   watermark, then the states hashes that are written
-- ARGV   expected watermark, new watermark, then for each state: number of its hash (from 1), learner,
--        '1' to write or '' to remove, state
-- Result 1 when applied, 0 when the watermark is not the expected one
-- Effect in one step: all states and the watermark change together, or nothing does.
if (redis.call('GET', KEYS[1]) or '0-0') ~= ARGV[1] then
  return 0
end
for a = 3, #ARGV, 4 do
  local states, learner = KEYS[1 + tonumber(ARGV[a])], ARGV[a + 1]
  if ARGV[a + 2] == '1' then
    redis.call('HSET', states, learner, ARGV[a + 3])
  else
    redis.call('HDEL', states, learner)
  end
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
