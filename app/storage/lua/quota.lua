-- Put before every script that counts for quotas. KEYS[1] and KEYS[2] are their changes and those that are closed.
-- A quota is a hash: uid, most, per, from, to (0: none), pace, counts, and of the latest window that was counted in window
-- (its start), shown, rewarded. It is closed, until a time, when it is used up or ahead of its line: by the end of a slice
-- of time an even pace may have shown what a straight line from 0 to `most` over the window allows.
-- A change is an entry of a stream: q (the quota), u and w (closed until, now and before), and if the quota itself has
-- changed r and b (its record, now and before; '': none). So the changes can be followed back.
local FOREVER, SLICE, MOST_CHANGES = 2 ^ 52, 100, 400000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number)
  return string.format('%.0f', number)
end

-- The quota as it is now; nil if there is none. Outside of [from, to) its window starts at -1.
local function read_quota(id, key)
  local uid, most, per, from, to, pace, counts, window, shown, rewarded = unpack(redis.call(
    'HMGET', key, 'uid', 'most', 'per', 'from', 'to', 'pace', 'counts', 'window', 'shown', 'rewarded'
  ))
  if not uid then
    return nil
  end
  local quota = { id = id, key = key, uid = uid, most = tonumber(most), pace = pace, counts = counts }
  per, from, to, window = tonumber(per), tonumber(from), tonumber(to), tonumber(window or -1)
  quota.now = math.max(now, window) -- the clock went back: the window goes on
  quota.start, quota.finish, quota.shown, quota.rewarded = -1, FOREVER, 0, 0
  if quota.now < from or (to > 0 and quota.now >= to) then
    return quota
  end
  quota.start = per > 0 and from + math.floor((quota.now - from) / per) * per or from
  quota.finish = math.min(per > 0 and quota.start + per or FOREVER, to > 0 and to or FOREVER)
  if window == quota.start then
    quota.shown, quota.rewarded = tonumber(shown), tonumber(rewarded)
  end
  return quota
end

local function closed_until(quota)
  if quota.start < 0 then
    return 0
  elseif quota[quota.counts] >= quota.most then
    return quota.finish
  elseif quota.pace == 'none' then
    return 0
  end
  local slice_end, length = (math.floor(quota.now / SLICE) + 1) * SLICE, quota.finish - quota.start
  if quota.shown < quota.most * (math.min(slice_end, quota.finish) - quota.start) / length then
    return 0
  end
  -- the slice at whose end the line is above what was shown
  return math.max(slice_end, math.floor((quota.start + quota.shown * length / quota.most) / SLICE) * SLICE)
end

-- Add a change where the quota is closed until another time, or its record has changed.
local function note(id, until_ms, record, before)
  local was = redis.call('HGET', KEYS[2], id) or '0'
  if not record and (until_ms == tonumber(was) or until_ms == 0 and tonumber(was) <= now) then
    return
  end
  local change = { 'q', id, 'u', text(until_ms), 'w', was, record and 'r', record, 'b', before }
  redis.call('HSET', KEYS[2], id, text(until_ms))
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', MOST_CHANGES, '*', unpack(change))
end

-- This change and those after it, as many as one turn of the event loop reads. If it is not the first of them, it is not known what has changed since.
local function changes_since(number)
  return number == '' and {} or redis.call('XRANGE', KEYS[1], number, '+', 'COUNT', 250)
end
