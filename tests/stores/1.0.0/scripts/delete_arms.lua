-- Put before every script that notes changes or reads them.
-- A log of changes is a sorted set: what changed, by the number of its last change. A thing that changes again
-- moves to the end, so the log is never longer than there are things; beyond `kept` the oldest are dropped.
local function note(changes, number, what)
  redis.call('ZADD', changes, string.format('%.0f', number), what)
end
local function shorten(changes, kept)
  local extra = redis.call('ZCARD', changes) - kept
  -- a tenth more is kept, so that not every change has to drop one
  if extra > kept / 10 then
    redis.call('ZREMRANGEBYRANK', changes, 0, extra - 1)
  end
end
-- What has changed after `number`, or false when some of it may have been dropped: then `kept` are left, and
-- all that was dropped had at most the number of the oldest.
local function changed_since(changes, number, kept)
  if redis.call('ZCARD', changes) >= kept then
    local oldest = redis.call('ZRANGE', changes, 0, 0, 'WITHSCORES')
    if number < tonumber(oldest[2]) then
      return false
    end
  end
  return redis.call('ZRANGEBYSCORE', changes, '(' .. string.format('%.0f', number), '+inf')
end

-- WITH   changes
-- KEYS   features, documents, counters, changes, stem of the retired keys (see upsert_arms.lua)
-- ARGV   keep_ms, changes kept, then ids
-- Result nil when the catalogue was deleted, else {version, {1 when it was there else 0, for each id}}
-- Effect in one step: the arms are removed, their features stay readable by revision for keep_ms, and the
--        version grows by one if there were any, and the changes say so. Repeated, it changes nothing.
local features, documents, counters, changes, retired = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if redis.call('HEXISTS', counters, 'deleted') == 1 then
  return false
end
local version = tonumber(redis.call('HGET', counters, 'version') or 0)
local found, any = {}, false
for a = 3, #ARGV do
  local id = ARGV[a]
  local old = redis.call('HGET', features, id)
  if old then
    local key = retired .. string.format('%.0f', struct.unpack('<I8', old))
    -- rewards of decisions that chose the arm still need its features
    redis.call('SET', key, string.sub(old, 9), 'PX', ARGV[1])
    redis.call('HDEL', features, id)
    redis.call('HDEL', documents, id)
    note(changes, version + 1, id)
    any = true
  end
  found[a - 2] = old and 1 or 0
end
if any then
  version = redis.call('HINCRBY', counters, 'version', 1)
  shorten(changes, tonumber(ARGV[2]))
end
return {version, found}
