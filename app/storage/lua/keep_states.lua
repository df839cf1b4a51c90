-- WITH   tails, ledger
-- KEYS   states, tails, kept, deleted, ledger
-- ARGV   uid of the bandit, bytes of a state by which it is known, ms when what is kept goes, most bytes of moves, then
--        for each learner: its name, those bytes of the state that was read or '', number of entries of its tail, the
--        state to keep
-- Result the bytes of moves that are held now, or -1 when there is no space
-- Effect in one step: of each learner that is as it was read the state is kept, where keeping has begun, and its bytes
--        are counted. So nothing is kept of a learner that was forgotten meanwhile.
local STATE = 100 -- bytes that a state takes besides its name and itself; see docs/limits.md
local now, bytes, writes = server_ms(), 0, {}
if not redis.call('ZSCORE', KEYS[4], ARGV[1]) and redis.call('EXISTS', KEYS[3]) == 1 then
  for a = 5, #ARGV, 4 do
    local learner, known, tail, state = unpack(ARGV, a, a + 3)
    if is_as_read(KEYS[1], KEYS[2], learner, known, ARGV[2], tail) then
      writes[#writes + 1] = { learner, state }
      bytes = bytes + STATE + #learner + rounded_up(#state)
    end
  end
end
if not has_space(KEYS[5], 'moves', bytes, ARGV[4], now) then
  return -1
end
for _, write in ipairs(writes) do
  redis.call('HSET', KEYS[3], write[1], write[2])
end
return count(KEYS[5], 'moves', bytes, period_of(math.max(now, tonumber(ARGV[3]))))
