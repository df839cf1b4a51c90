-- WITH   quota_changed
-- KEYS   quotas of the bandit, the quota, its shares, changes
-- ARGV   id, record, the record that is expected or '', uid, most shown, per, from, to, most quotas, most changes
-- Result the record that stands then; nil when there are as many quotas as there may be
-- Effect in one step: the record is stored if the expected one stands, with what scripts have to know of it. With
--        another uid counting starts at 0.
local current = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if current ~= ARGV[3] then
  return current
end
if current == '' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[9]) then
  return nil
end
if redis.call('HGET', KEYS[2], 'uid') ~= ARGV[4] then
  redis.call('DEL', KEYS[2], KEYS[3])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], 'uid', ARGV[4], 'most', ARGV[5], 'per', ARGV[6], 'from', ARGV[7], 'to', ARGV[8])
note_change(KEYS[4], ARGV[1], tonumber(ARGV[10]))
return ARGV[2]
