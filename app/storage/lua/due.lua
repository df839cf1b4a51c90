-- KEYS   decisions, due, idle, erase
-- ARGV   now_ms, count
-- Result {members of decisions that are due, their records, members of idle learners, members to erase and entry ids}
-- Effect none.
local count = tonumber(ARGV[2])
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, count)
local records = {}
for i, member in ipairs(due) do
  records[i] = redis.call('HGET', KEYS[1], member) or ''
end
local idle = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ARGV[1], 'LIMIT', 0, count)
return {due, records, idle, redis.call('HSCAN', KEYS[4], 0, 'COUNT', count)[2]}
