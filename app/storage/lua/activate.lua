-- WITH   dedupe, ledger, waiting, rows
-- KEYS   active, decisions, due, forgotten, refused, ledger; if it has a row in the decision log: deleted, row-logs,
--        rows, row-times
-- ARGV   member, ttl_ms, record or '', due_ms, known entry, expires_ms, most bytes of activations
--        and of waiting decisions; then of its row: bandit uid, learner, field, keep_ms, record
-- Result {outcome, bytes held now of activations and of waiting decisions, where some were added}: 'activated',
--        'duplicate' when it was active before, 'forgotten' when its learner was forgotten since, 'expired' when
--        its rewards are refused, 'full activations' or 'full waiting' when there is no space for it
-- Effect in one step: the decision is active for ttl_ms, and waited for if there is a record, and has its row;
--        all is counted.
--        Repeated, it changes nothing.
local ACTIVE = 190 -- bytes that an active decision takes besides its key
if is_forgotten(KEYS[4], ARGV[5]) then
  return { 'forgotten' }
end
if refusals(KEYS[5])(ARGV[6], ARGV[5]) then
  return { 'expired' }
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return { 'duplicate' }
end
local ledger, bytes, now = KEYS[6], ACTIVE + #KEYS[1], server_ms()
local waits = ARGV[3] ~= '' and redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0
if not has_space(ledger, 'activations', bytes, ARGV[7], now) then
  return { 'full activations' }
end
if waits and held_by_waiting(ledger) + waiting_bytes(KEYS[2], ARGV[1], ARGV[3]) > tonumber(ARGV[8]) then
  return { 'full waiting' }
end
redis.call('SET', KEYS[1], '', 'PX', ARGV[2])
local outcome = { 'activated', count(ledger, 'activations', bytes, period_of(now + tonumber(ARGV[2]))) }
if waits then
  outcome[3] = wait_for(ledger, KEYS[2], KEYS[3], ARGV[1], ARGV[3], ARGV[4])
end
if KEYS[7] then
  local bandit, learner, field, keep_ms, record = unpack(ARGV, 9, 13)
  if is_kept(KEYS[7], KEYS[8], bandit, field) then
    redis.call('HSETNX', KEYS[8], bandit, keep_ms)
    keep_row(KEYS[9], KEYS[10], field, learner, ARGV[5], record)
    count_rows(ledger)
  end
end
return outcome
