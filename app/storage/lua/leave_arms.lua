-- KEYS   lease of the follower
-- ARGV   owner
-- Result 1
-- Effect the lease ends, if it is the owner's
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
