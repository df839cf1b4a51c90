-- WITH   quota_window
-- KEYS   held, held-until; stem of the quotas, stem of their shares
-- ARGV   decision, what it took of quotas (msgpack of {quota, uid, window, count, whether it is limited} ..), when it
--        expires in ms, most held
-- Result for each quota how much deferred decisions may still hold of it, without this one; nil when as many decisions
--        are held as may be
-- Effect in one step: where that is enough, it is known what is given back if the decision expires without being
--        activated; else nothing is.
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
  return nil
end
local now, answer, fits, found = server_ms(), {}, true, {}
for _, taken in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, uid, window, count, limits = unpack(taken)
  local quota = quota_now(KEYS[3] .. id, KEYS[4] .. id, now)
  local most = FOREVER
  if quota and quota.uid == uid and quota.start == window then
    most = limits and deferrable(quota) or FOREVER
    table.insert(found, { KEYS[3] .. id, count })
  end
  fits = fits and count <= most
  table.insert(answer, most)
end
if fits then
  for _, each in ipairs(found) do
    redis.call('HINCRBY', each[1], 'deferred', each[2])
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
end
return answer
