-- KEYS   active, decisions, due
-- ARGV   member, ttl_ms, record or '', due_ms
-- Result 1 when it was not active before
-- Effect in one step: the decision is active for ttl_ms, and logged if there is a record. Repeated, it changes
--        nothing.
if not redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[2]) then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
end
return 1
