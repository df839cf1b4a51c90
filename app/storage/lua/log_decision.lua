-- WITH   dedupe, rows
-- KEYS   decisions, due, refused; if it has a row in the decision log: deleted, row-logs, rows, row-times, forgotten
-- ARGV   member, record, due_ms, expires_ms, known entry; then of its row: bandit uid, learner, field, keep_ms, record,
--        candidates or ''
-- Result 1, or 0 when it was there or its rewards are refused as expired
-- Effect in one step: the record is kept, and due then; so is the row. Repeated, it changes nothing.
if refusals(KEYS[3])(ARGV[4], ARGV[5]) or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
-- in the same step, so that no decision of such a bandit waits without its row
if KEYS[4] then
  local bandit, learner, field, keep_ms, record, candidates = unpack(ARGV, 6, 11)
  if is_kept(KEYS[4], KEYS[5], bandit, field) and not is_forgotten(KEYS[8], ARGV[5]) then
    redis.call('HSETNX', KEYS[5], bandit, keep_ms)
    keep_row(KEYS[6], KEYS[7], field, learner, ARGV[5], record, candidates)
  end
end
return 1
