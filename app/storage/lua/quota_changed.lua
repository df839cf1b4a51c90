-- Put before every script that changes which quotas there are.
-- The changes are a sorted set of the quotas that changed, each with the number of its last change, of which the
-- `most` last are kept; what was changed before the first of them is not known one by one.
local function note_change(changes, id, most)
  local last = redis.call('ZRANGE', changes, -1, -1, 'WITHSCORES')
  redis.call('ZADD', changes, (tonumber(last[2]) or 0) + 1, id)
  redis.call('ZREMRANGEBYRANK', changes, 0, -most - 1)
end
