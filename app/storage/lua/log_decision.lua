-- KEYS   decisions, due, refused, ledger
-- ARGV   member, record, due_ms, expires_ms, known entry or '', most bytes of waiting decisions
-- Result the bytes of waiting decisions that are held now, 0 when it was there or its rewards are refused as
--        expired, -1 when there is no room for it
-- Effect in one step: the record is kept, and due then, and its bytes are counted. Repeated, it changes nothing.
if refusals(KEYS[3])(ARGV[4], ARGV[5]) or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 0
end
if held_by_waiting(KEYS[4], KEYS[1]) + waiting_bytes(KEYS[1], ARGV[1], ARGV[2]) > tonumber(ARGV[6]) then
  return -1
end
return wait_for(KEYS[4], KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3])
