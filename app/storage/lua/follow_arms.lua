-- KEYS   counters, features, changes, lease of the follower
-- ARGV   owner, or '' who only looks; ttl_ms
-- Result {1 if the lease is the owner's else 0, arms, changes after the version that is followed,
--         version, followed version, followed arm, collection, quality}
-- Effect the lease is taken or renewed, unless another one holds it or the catalogue was deleted
local counters, lease, owner = KEYS[1], KEYS[4], ARGV[1]
local holder, ours = redis.call('GET', lease), 0
if owner ~= '' and (not holder or holder == owner) and redis.call('HEXISTS', counters, 'deleted') == 0 then
  redis.call('SET', lease, owner, 'PX', ARGV[2])
  ours = 1
end
local known = redis.call('HMGET', counters, 'version', 'followed', 'followed_arm', 'collection', 'quality')
local pending = redis.call('ZCOUNT', KEYS[3], '(' .. (known[2] or '0'), '+inf')
return { ours, redis.call('HLEN', KEYS[2]), pending, unpack(known, 1, 5) }
