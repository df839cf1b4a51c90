-- KEYS   log, then for each bandit: states, tails
-- ARGV   for each learner: number of its bandit (from 1), learner, last entry id that is known or ''
-- Result for each learner {checkpoint or nil, 1 when the tail continues from the known entry else 0, {entries}}
-- Effect none. From a known entry that is in the tail on, neither the checkpoint nor what is before it is read.
local found, has_tails = {}, {}
for k = 3, #KEYS, 2 do
  has_tails[k] = redis.call('EXISTS', KEYS[k]) == 1
end
for a = 1, #ARGV, 3 do
  local k = 2 * tonumber(ARGV[a])
  local states, tails, learner, known = KEYS[k], KEYS[k + 1], ARGV[a + 1], ARGV[a + 2]
  local checkpoint, continues, entries = false, 0, {}
  if has_tails[k + 1] then
    local stem = tail_stem(learner)
    local least, most = tail_range(stem)
    if known ~= '' and redis.call('ZSCORE', tails, tail_member(stem, known)) then
      least, continues = '(' .. tail_member(stem, known), 1
    end
    entries = tail_entries(KEYS[1], redis.call('ZRANGEBYLEX', tails, least, most))
  end
  if continues == 0 then
    checkpoint = redis.call('HGET', states, learner)
  end
  found[#found + 1] = { checkpoint, continues, entries }
end
return found
