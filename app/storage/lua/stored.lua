-- WITH   tails
-- KEYS   log, then for each bandit: states, tails
-- ARGV   for each learner: number of its bandit (from 1), learner, last entry id that is known or ''
-- Result {checkpoint of each learner or nil}, then for each that has a tail {its place from 0, 1 when the tail
--        continues from the known entry else 0, {entries}}
-- Effect none. From a known entry that is in the tail on, neither the checkpoint nor what is before it is read.
local checkpoints, has_tails, wanted = {}, {}, {}
local found = { checkpoints }
for k = 2, #KEYS, 2 do
  has_tails[k] = redis.call('EXISTS', KEYS[k + 1]) == 1
  wanted[k] = { {}, {} }
end
for a = 1, #ARGV, 3 do
  local place, k, learner, known = (a + 2) / 3, 2 * tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2]
  local continues = 0
  if has_tails[k] then
    local tails, stem = KEYS[k + 1], tail_stem(learner)
    local least, most = tail_range(stem)
    if known ~= '' and redis.call('ZSCORE', tails, tail_member(stem, known)) then
      least, continues = '(' .. tail_member(stem, known), 1
    end
    local members = redis.call('ZRANGEBYLEX', tails, least, most)
    if continues == 1 or #members > 0 then
      found[#found + 1] = { place - 1, continues, tail_entries(KEYS[1], members) }
    end
  end
  checkpoints[place] = false
  if continues == 0 then
    local names, places = wanted[k][1], wanted[k][2]
    names[#names + 1], places[#places + 1] = learner, place
  end
end
for k = 2, #KEYS, 2 do
  local names, places = wanted[k][1], wanted[k][2]
  -- Lua's unpack takes only some thousand values
  for first = 1, #names, 1000 do
    local last = math.min(first + 999, #names)
    local values = redis.call('HMGET', KEYS[k], unpack(names, first, last))
    for i = first, last do
      checkpoints[places[i]] = values[i - first + 1]
    end
  end
end
return found
