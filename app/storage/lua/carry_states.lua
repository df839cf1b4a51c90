-- WITH   tails
-- KEYS   states, tails, deleted
-- ARGV   uid of the bandit, bytes of a state by which it is known, then for each learner: its name, those bytes of the
--        state that was read or '', number of entries of its tail, '1' and the state to write, or '' and ''
-- Result how many were written
-- Effect in one step: each learner that is as it was read gets the state, in place of checkpoint and tail, or goes.
if redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  return 0
end
local written = 0
for a = 3, #ARGV, 5 do
  local learner, known, tail, kind, state = unpack(ARGV, a, a + 4)
  if is_as_read(KEYS[1], KEYS[2], learner, known, ARGV[2], tail) then
    redis.call('ZREMRANGEBYLEX', KEYS[2], tail_range(tail_stem(learner)))
    if kind == '1' then
      redis.call('HSET', KEYS[1], learner, state)
    else
      redis.call('HDEL', KEYS[1], learner)
    end
    written = written + 1
  end
end
return written
