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
-- A catalogue whose arms were written is also noted among all of them: that is what a poll reads. On a cluster
-- their log would be on another node, and is not given.
local function note_catalogue(features, writes, catalogues)
  if writes then
    note(catalogues, redis.call('HINCRBY', writes, 'version', 1), string.match(features, '{c:(.-)}'))
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
