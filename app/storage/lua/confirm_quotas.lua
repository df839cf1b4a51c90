-- WITH   quota_window
-- KEYS   held, held-until; stem of the quotas, stem of their shares
-- ARGV   decision, when it expires in ms, margin in ms
-- Result 1: it counts, also when this is repeated; 0: it is too late; -1: nothing is left in the current window
-- Effect in one step: nothing is given back of the decision, for it was shown. What it took in a window that is over
--        counts in that of now.
local now = server_ms()
local packed = redis.call('HGET', KEYS[1], ARGV[1])
if not packed then -- the clock may have gone back since others were released
  now = math.max(now, tonumber(redis.call('HGET', KEYS[1], 'released') or 0))
  return now < tonumber(ARGV[2]) + tonumber(ARGV[3]) and 1 or 0
end
local moved, shown = {}, {}
for _, taken in ipairs(cmsgpack.unpack(packed)) do
  local id, uid, window, count, limits = unpack(taken)
  local quota = quota_now(KEYS[3] .. id, KEYS[4] .. id, now)
  if quota and quota.uid == uid and quota.holds and quota.start ~= window then
    if limits and quota.most - quota.granted < count then
      return -1
    end
    table.insert(moved, { KEYS[3] .. id, count })
  elseif quota and quota.uid == uid and quota.start == window then
    table.insert(shown, { KEYS[3] .. id, quota, count })
  end
end
for _, each in ipairs(shown) do
  undefer(unpack(each))
end
for _, each in ipairs(moved) do
  redis.call('HINCRBY', each[1], 'granted', each[2])
  redis.call('HINCRBY', each[1], 'spent', each[2])
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
