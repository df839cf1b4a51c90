-- WITH   quota_window
-- KEYS   held, held-until; stem of the quotas, stem of their shares
-- ARGV   how many at most
-- Result how many decisions were released
-- Effect in one step: what deferred decisions took in version 1.0 is given back, in the window it was taken from. They
--        count when they are activated.
local now = server_ms()
local decisions = redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1)
for _, decision in ipairs(decisions) do
  local packed = redis.call('HGET', KEYS[1], decision)
  for _, taken in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    local id, uid, window, count = unpack(taken)
    local quota = quota_now(KEYS[3] .. id, KEYS[4] .. id, now)
    if quota and quota.uid == uid and quota.start == window then
      redis.call('HINCRBY', KEYS[3] .. id, 'granted', -count)
      redis.call('HINCRBY', KEYS[3] .. id, 'spent', -count)
    end
  end
  redis.call('HDEL', KEYS[1], decision)
  redis.call('ZREM', KEYS[2], decision)
end
if redis.call('ZCARD', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
end
return #decisions
