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
-- KEYS   features, documents, counters, changes
-- ARGV   version, changes kept, reduction, then for each arm: id, features, document
-- Result 1, or 0 when the catalogue was deleted, has another version, or has a reduction
-- Effect in one step: the reduction is stored for good, and the arms, which must be all, get new features, revisions and
--        documents. The version grows by one.
local features, documents, counters, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local known = redis.call('HMGET', counters, 'version', 'revision', 'fitted', 'deleted')
if known[1] ~= ARGV[1] or known[3] or known[4] then
  return 0
end
local version, revision = tonumber(known[1]) + 1, tonumber(known[2] or 0)
for a = 4, #ARGV, 3 do
  revision = revision + 1
  redis.call('HSET', features, ARGV[a], struct.pack('<I8', revision) .. ARGV[a + 1])
  if ARGV[a + 2] == '' then
    redis.call('HDEL', documents, ARGV[a])
  else
    redis.call('HSET', documents, ARGV[a], ARGV[a + 2])
  end
  redis.call('ZADD', changes, string.format('%.0f', version), ARGV[a])
end
redis.call('HSET', counters, 'version', string.format('%.0f', version), 'revision',
  string.format('%.0f', revision), 'fitted', ARGV[3])
shorten(changes, tonumber(ARGV[2]))
return 1
