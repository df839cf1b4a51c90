-- WITH   dedupe, rows
-- KEYS   refused, deleted, row-logs, then for each learner: rows, row-times, forgotten
-- ARGV   number of learners; for each: bandit uid, learner, keep_ms, number of its rows, and for each of them:
--        field, known entry, record, candidates or ''
-- Result 1
-- Effect in one step: every row is kept that is not there, whose learner was not forgotten after its decision, and
--        whose bandit is not deleted and has not dropped rows as old. Repeated, it changes nothing.
local is_refused, place, noted = refusals(KEYS[1]), 2, {}
for i = 1, tonumber(ARGV[1]) do
  local rows, times, forgotten = unpack(KEYS, 1 + 3 * i, 3 + 3 * i)
  local bandit, learner, keep_ms, many = unpack(ARGV, place, place + 3)
  place = place + 4
  for _ = 1, tonumber(many) do
    local field, known, record, candidates = unpack(ARGV, place, place + 3)
    place = place + 4
    if
      is_kept(KEYS[2], KEYS[3], bandit, field)
      and not is_refused(math.huge, known)
      and not is_forgotten(forgotten, known)
    then
      if not noted[bandit] then
        redis.call('HSETNX', KEYS[3], bandit, keep_ms)
        noted[bandit] = true
      end
      keep_row(rows, times, field, learner, known, record, candidates)
    end
  end
end
return 1
