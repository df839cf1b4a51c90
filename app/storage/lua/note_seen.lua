-- KEYS   bandits, what was folded for each before its effects were fitted
-- ARGV   for each bandit: its name, its uid, what was folded
-- Effect in one step: stored of each bandit that there is. One that was deleted meanwhile leaves nothing.
for b = 1, #ARGV, 3 do
  local bandit = redis.call('HGET', KEYS[1], ARGV[b])
  if bandit and string.sub(bandit, 1, #ARGV[b + 1]) == ARGV[b + 1] then
    redis.call('HSET', KEYS[2], ARGV[b + 1], ARGV[b + 2])
  end
end
