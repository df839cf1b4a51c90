-- WITH   quota_changed
-- KEYS   quotas of the bandit, the quota, its shares, changes
-- ARGV   id, record, number of the last change that is known, uid, most shown, per, from, to, most changes
-- Result 1; 0 when the quotas have changed since
-- Effect in one step: the record is stored, with what scripts have to know of it. With another uid counting starts at 0.
local last = redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')
if (tonumber(last[2]) or 0) ~= tonumber(ARGV[3]) then
  return 0
end
if redis.call('HGET', KEYS[2], 'uid') ~= ARGV[4] then
  redis.call('DEL', KEYS[2], KEYS[3])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], 'uid', ARGV[4], 'most', ARGV[5], 'per', ARGV[6], 'from', ARGV[7], 'to', ARGV[8])
note_change(KEYS[4], ARGV[1], tonumber(ARGV[9]))
return 1
