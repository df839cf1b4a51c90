-- KEYS   active, decisions, due, forgotten, ledger
-- ARGV   member, ttl_ms, record or '', due_ms, issued_ms, most bytes of activations and of waiting decisions
-- Result {outcome, bytes held now of activations and of waiting decisions, where some were added}: 'activated',
--        'duplicate' when it was active before, 'forgotten' when its learner was forgotten since,
--        'full activations' or 'full waiting' when there is no room for it
-- Effect in one step: the decision is active for ttl_ms, and logged if there is a record, and both are counted.
--        Repeated, it changes nothing.
local ACTIVE = 190 -- bytes that an active decision takes besides its key
local refused_until = string.match(redis.call('GET', KEYS[4]) or '', '^%d+')
if refused_until and tonumber(ARGV[5]) <= tonumber(refused_until) then
  return { 'forgotten' }
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return { 'duplicate' }
end
local ledger, bytes, now = KEYS[5], ACTIVE + #KEYS[1], server_ms()
local waits = ARGV[3] ~= '' and redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0
if not has_room(ledger, 'activations', bytes, ARGV[6], now) then
  return { 'full activations' }
end
if waits and held_by_waiting(ledger, KEYS[2]) + waiting_bytes(KEYS[2], ARGV[1], ARGV[3]) > tonumber(ARGV[7]) then
  return { 'full waiting' }
end
redis.call('SET', KEYS[1], '', 'PX', ARGV[2])
local outcome = { 'activated', count(ledger, 'activations', bytes, period_of(now + tonumber(ARGV[2]))) }
if waits then
  outcome[3] = wait_for(ledger, KEYS[2], KEYS[3], ARGV[1], ARGV[3], ARGV[4])
end
return outcome
