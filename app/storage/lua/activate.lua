-- KEYS   active, decisions, due, forgotten
-- ARGV   member, ttl_ms, record or '', due_ms, issued_ms
-- Result 'activated', 'duplicate' when it was active before, 'forgotten' when its learner was forgotten since
-- Effect in one step: the decision is active for ttl_ms, and logged if there is a record. Repeated, it changes
--        nothing.
local refused_until = string.match(redis.call('GET', KEYS[4]) or '', '^%d+')
if refused_until and tonumber(ARGV[5]) <= tonumber(refused_until) then
  return 'forgotten'
end
if not redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[2]) then
  return 'duplicate'
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
end
return 'activated'
