-- Put before every script that counts for quotas.
-- A quota is a hash with the fields uid, most, per, from, to (see storage/types/quotas.py; 0: none), and of the latest
-- window that was counted in: window (its start), granted, spent, rewarded.
local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

local FOREVER = 2 ^ 52

-- The quota as it is now: nil if there is none; holds is false outside of [from, to), until `finish`. Where another
-- window has begun its counts begin at 0, and the shares of the one before are dropped.
local function quota_now(key, shares, now)
  local uid, most, per, from, to, window, granted, spent, rewarded = unpack(
    redis.call('HMGET', key, 'uid', 'most', 'per', 'from', 'to', 'window', 'granted', 'spent', 'rewarded')
  )
  if not uid then
    return nil
  end
  local quota = { uid = uid, most = tonumber(most), holds = true }
  per, from, to, window = tonumber(per), tonumber(from), tonumber(to), window and tonumber(window)
  if window and window > now then
    now = window -- the clock went back
  end
  if now < from or (to > 0 and now >= to) then
    quota.holds, quota.start = false, -1
    quota.finish = now < from and from or FOREVER
    quota.granted, quota.spent, quota.rewarded = 0, 0, 0
    return quota
  end
  quota.start = per > 0 and from + math.floor((now - from) / per) * per or from
  quota.finish = per > 0 and quota.start + per or FOREVER
  if to > 0 then
    quota.finish = math.min(quota.finish, to)
  end
  if window == quota.start then
    quota.granted, quota.spent, quota.rewarded = tonumber(granted), tonumber(spent), tonumber(rewarded)
  else
    quota.granted, quota.spent, quota.rewarded = 0, 0, 0
    redis.call('DEL', shares)
    redis.call('HSET', key, 'window', text(quota.start), 'granted', 0, 'spent', 0, 'rewarded', 0)
  end
  return quota
end
