-- WITH   dedupe, ledger, waiting, rows
-- KEYS   decisions, due, refused, ledger; if it has a row in the decision log: deleted, row-logs, rows, row-times,
--        forgotten
-- ARGV   member, record, due_ms, expires_ms, known entry, most bytes of waiting decisions; then of its
--        row: bandit uid, learner, field, keep_ms, record
-- Result the bytes of waiting decisions that are held now, 0 when it was there or its rewards are refused as
--        expired, -1 when there is no space for it
-- Effect in one step: the record is kept, and due then, and its bytes are counted; so is the row. Repeated, it
--        changes nothing.
if refusals(KEYS[3])(ARGV[4], ARGV[5]) or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 0
end
if held_by_waiting(KEYS[4]) + waiting_bytes(KEYS[1], ARGV[1], ARGV[2]) > tonumber(ARGV[6]) then
  return -1
end
local held = wait_for(KEYS[4], KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3])
-- in the same step, so that no decision of such a bandit waits without its row
if KEYS[5] then
  local bandit, learner, field, keep_ms, record = unpack(ARGV, 7, 11)
  if is_kept(KEYS[5], KEYS[6], bandit, field) and not is_forgotten(KEYS[9], ARGV[5]) then
    redis.call('HSETNX', KEYS[6], bandit, keep_ms)
    keep_row(KEYS[7], KEYS[8], field, learner, ARGV[5], record)
    count_rows(KEYS[4])
  end
end
return held
