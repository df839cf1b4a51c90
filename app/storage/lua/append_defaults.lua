-- WITH   log_tail, dedupe, rows
-- KEYS   log, watermark, decisions, due, seen-ends, then for each default: seen-until, forgotten, rows
-- ARGV   number of decisions, their members, then for each default: member, bandit uid, learner,
--        known entry, payload, the last of the ms in the name of seen-until, decision key;
--        field of the row of the decision and what is put at its end, or '' and '' without one
-- Result id of the last entry that was appended, or nil
-- Effect in one step: of the decisions that are still logged, every arm without a reward whose learner was not
--        forgotten gets its default; its decision key says so ('d'), and the row of the decision if there is one. Then
--        the decisions are removed, so that repeated, or done by another worker at the same time, it changes nothing.
local log, decisions, due, ends = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local next = next_id(log, KEYS[2])
local last = false
local logged, decided = {}, tonumber(ARGV[1])
for a = 2, decided + 1 do
  logged[ARGV[a]] = redis.call('HEXISTS', decisions, ARGV[a]) == 1
end
for i = 1, (#ARGV - 1 - decided) / 9 do
  local home, forgotten, rows = unpack(KEYS, 3 + 3 * i, 5 + 3 * i)
  local a = 1 + decided + 9 * (i - 1)
  local member, bandit, learner, known, payload, last_ms, first, field, reward = unpack(ARGV, a + 1, a + 9)
  if logged[member] and not is_forgotten(forgotten, known) and take(ends, home, last_ms, first, 'd') then
    last = next()
    redis.call('XADD', log, last, 'b', bandit, 'l', learner, 'p', payload)
    if field ~= '' then
      add_reward(rows, field, reward)
    end
  end
end
for member, _ in pairs(logged) do
  redis.call('HDEL', decisions, member)
  redis.call('ZREM', due, member)
end
return last
