-- Put after log_tail.lua before every script that forgets a learner.
-- forget({log, watermark, forgotten, erase, idle, forgotten-until, exposures}, bandit, learner, payload, now, ttl)
--   -> the entry id
--   The entry is appended, and rewards of decisions from before are refused: at least for ttl, and until all
--   that is as old is refused (drop_expired). The learner is put on the list of those of whom nothing is to be
--   kept. It no longer has a time to live. Repeated with the same now it
--   gives the same entry, and does nothing: another entry would also remove what came since. Appending comes
--   first: it is what a server without memory refuses.
local function forget(keys, bandit, learner, payload, now, ttl)
  local log, watermark, forgotten, erase, idle, forgotten_until, exposures = unpack(keys)
  local before, entry = string.match(redis.call('GET', forgotten) or '', '^(%d+) (.+)$')
  if before and tonumber(before) == now then
    return entry
  end
  entry = redis.call('XADD', log, next_id(log, watermark)(), 'b', bandit, 'l', learner, 'p', payload)
  local until_ms = math.max(now, tonumber(before or 0))
  redis.call('SET', forgotten, string.format('%.0f %s', until_ms, entry))
  redis.call('ZADD', forgotten_until, 'GT', string.format('%.0f', until_ms + ttl), bandit .. ':' .. learner)
  redis.call('HSET', erase, bandit .. '/' .. learner, entry)
  redis.call('ZREM', idle, bandit .. '/' .. learner)
  redis.call('DEL', exposures)
  return entry
end
