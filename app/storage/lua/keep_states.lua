-- WITH   tails
-- KEYS   states, tails, kept, deleted
-- ARGV   uid of the bandit, bytes of a state by which it is known, then for each learner: its name, those bytes of the
--        state that was read or '', number of entries of its tail, the state to keep
-- Result how many were kept
-- Effect in one step: of each learner that is as it was read the state is kept, where keeping has begun. So nothing is
--        kept of a learner that was forgotten meanwhile.
if redis.call('ZSCORE', KEYS[4], ARGV[1]) or redis.call('EXISTS', KEYS[3]) == 0 then
  return 0
end
local count = 0
for a = 3, #ARGV, 4 do
  local learner, known, tail, state = unpack(ARGV, a, a + 3)
  if is_as_read(KEYS[1], KEYS[2], learner, known, ARGV[2], tail) then
    redis.call('HSET', KEYS[3], learner, state)
    count = count + 1
  end
end
return count
