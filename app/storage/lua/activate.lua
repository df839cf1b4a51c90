-- WITH   dedupe, rows
-- KEYS   active, decisions, due, forgotten, refused; if it has a row in the decision log: deleted, row-logs, rows,
--        row-times
-- ARGV   member, ttl_ms, record or '', due_ms, known entry, expires_ms; then of its row: bandit uid, learner, field,
--        keep_ms, record
-- Result 'activated', 'duplicate' when it was active before, 'forgotten' when its learner was forgotten since,
--        'expired' when its rewards are refused
-- Effect in one step: the decision is active for ttl_ms, and waited for if there is a record, and has its row.
--        Repeated, it changes nothing.
if is_forgotten(KEYS[4], ARGV[5]) then
  return 'forgotten'
end
if refusals(KEYS[5])(ARGV[6], ARGV[5]) then
  return 'expired'
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 'duplicate'
end
redis.call('SET', KEYS[1], '', 'PX', ARGV[2])
if ARGV[3] ~= '' and redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[3]) == 1 then
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
end
if KEYS[6] then
  local bandit, learner, field, keep_ms, record = unpack(ARGV, 7, 11)
  if is_kept(KEYS[6], KEYS[7], bandit, field) then
    redis.call('HSETNX', KEYS[7], bandit, keep_ms)
    keep_row(KEYS[8], KEYS[9], field, learner, ARGV[5], record, '')
  end
end
return 'activated'
