-- WITH   quota_window
-- KEYS   held, held-until; stem of the quotas, stem of their shares
-- ARGV   margin in ms, how many at most
-- Result how many decisions were released
-- Effect in one step: what expired decisions took that nobody activated is given back, in the window it was taken from,
--        and when that was is kept, for confirm_quotas.
local now = server_ms()
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now - tonumber(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, decision in ipairs(over) do
  local packed = redis.call('HGET', KEYS[1], decision)
  for _, taken in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    local id, uid, window, count = unpack(taken)
    local quota = quota_now(KEYS[3] .. id, KEYS[4] .. id, now)
    if quota and quota.uid == uid and quota.start == window then
      redis.call('HINCRBY', KEYS[3] .. id, 'granted', -count)
      redis.call('HINCRBY', KEYS[3] .. id, 'spent', -count)
      undefer(KEYS[3] .. id, quota, count)
    end
  end
  redis.call('HDEL', KEYS[1], decision)
  redis.call('ZREM', KEYS[2], decision)
end
if #over > 0 then
  redis.call('HSET', KEYS[1], 'released', text(now))
end
return #over
