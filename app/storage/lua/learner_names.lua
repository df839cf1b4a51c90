-- WITH   tails
-- KEYS   states, tails
-- Result the names of all learners of the bandit that have a state in the partition, some of them twice
-- Effect none. Cost: one step for each learner, and one search for each that has a tail.
local names = redis.call('HKEYS', KEYS[1])
local from = '-'
while true do
  local member = redis.call('ZRANGEBYLEX', KEYS[2], from, '+', 'LIMIT', 0, 1)[1]
  if not member then
    return names
  end
  local length, after = string.match(member, '^(%d+)%.()')
  local name = string.sub(member, after, after + tonumber(length) - 1)
  names[#names + 1] = name
  local _, most = tail_range(tail_stem(name))
  -- behind the whole tail of this learner, which may have hundreds of members
  from = '[' .. string.sub(most, 2)
end
