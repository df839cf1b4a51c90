-- WITH   quota
-- KEYS   changes, closed; the quota, quotas of the bandit
-- ARGV   id, record or '' to delete it, record that it must have before or '' for none, most quotas, uid, most, per, from,
--        to, pace, counts
-- Result 1; 0 when it has another record by now, or there is none to delete; -1 when there are as many as may be
-- Effect in one step: the record is stored, with what scripts have to know of it. With another uid counting starts at 0.
local id, record, current = ARGV[1], ARGV[2], redis.call('HGET', KEYS[4], ARGV[1]) or ''
if record == '' then
  if redis.call('HDEL', KEYS[4], id) == 1 then
    redis.call('DEL', KEYS[3])
    note(id, 0, '', current)
  end
  return current == '' and 0 or 1
elseif current ~= ARGV[3] then
  return 0
elseif current == '' and redis.call('HLEN', KEYS[4]) >= tonumber(ARGV[4]) then
  return -1
end
if redis.call('HGET', KEYS[3], 'uid') ~= ARGV[5] then
  redis.call('DEL', KEYS[3])
end
redis.call('HSET', KEYS[4], id, record)
redis.call(
  'HSET', KEYS[3], 'uid', ARGV[5], 'most', ARGV[6], 'per', ARGV[7], 'from', ARGV[8], 'to', ARGV[9], 'pace', ARGV[10],
  'counts', ARGV[11]
)
note(id, closed_until(read_quota(id, KEYS[3])), record, current)
return 1
