-- WITH   tails
-- KEYS   watermark, log, then for each bandit: states, tails
-- Result {watermark, for each bandit {{learner, checkpoint, ..}, {learner of each entry of a tail}, {entries}}}
-- Effect none.
local found = { redis.call('GET', KEYS[1]) or '0-0' }
for k = 3, #KEYS, 2 do
  local members, learners = redis.call('ZRANGE', KEYS[k + 1], 0, -1), {}
  for i, member in ipairs(members) do
    local length, after = string.match(member, '^(%d+)%.()')
    learners[i] = string.sub(member, after, after + tonumber(length) - 1)
  end
  found[#found + 1] = { redis.call('HGETALL', KEYS[k]), learners, tail_entries(KEYS[2], members) }
end
return found
