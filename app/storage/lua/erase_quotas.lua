-- KEYS   quotas of a bandit; stem of its quotas; changes, closed
-- Effect in one step: nothing is left of them.
for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
  redis.call('DEL', KEYS[2] .. id)
end
redis.call('DEL', KEYS[1], KEYS[3], KEYS[4])
