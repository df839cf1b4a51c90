-- KEYS   decisions, due
-- ARGV   member, record, due_ms
-- Result 1 when it is new
-- Effect in one step: the record is kept, and due then. Repeated, it changes nothing.
local new = redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
if new == 1 then
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
end
return new
