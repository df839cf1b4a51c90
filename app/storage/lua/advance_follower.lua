-- KEYS   counters, lease of the follower
-- ARGV   owner, collection, version and arm before, version and arm after, quality
-- Result 1, or 0 where the lease is not the owner's
-- Effect in one step: the position is noted. Without the lease the follower of the same collection goes back to
--        the position before, for what this one wrote may be older than what that one wrote.
local counters = KEYS[1]
if redis.call('HEXISTS', counters, 'deleted') == 1 then
  return 0
end
if redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('HSET', counters, 'collection', ARGV[2], 'followed', ARGV[5], 'followed_arm', ARGV[6], 'quality', ARGV[7])
  return 1
end
local known = redis.call('HMGET', counters, 'followed', 'collection')
if known[2] == ARGV[2] and tonumber(ARGV[3]) <= tonumber(known[1] or '0') then
  redis.call('HSET', counters, 'followed', ARGV[3], 'followed_arm', ARGV[4])
end
return 0
