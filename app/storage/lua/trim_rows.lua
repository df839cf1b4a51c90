-- WITH   rows
-- KEYS   row-times, stem of the rows keys of the bandit, row-logs
-- ARGV   bandit uid, before_ms or '' for all, count, keep_ms or '' when that stays as it is
-- Result how many rows were dropped
-- Effect in one step: of the rows that were decided before before_ms, the count oldest are dropped; if there are
--        any, no row from before then is made from now on. Without before_ms, for a deleted bandit, what the
--        partition knows of its log goes with the last of them. A server without memory refuses the first write of a
--        script if it could take memory, and no later one: this one takes none, so that what gives memory back is done.
--        The keys follow from the members, with the hash tag of the declared stem.
local times, logs, uid, before = KEYS[1], KEYS[3], ARGV[1], ARGV[2]
redis.call('HDEL', logs, '')
if before ~= '' and ARGV[4] ~= '' and redis.call('HEXISTS', logs, uid) == 1 then
  redis.call('HSET', logs, uid, ARGV[4])
end
local most = before == '' and '+' or '(' .. string.format('%013.0f', before)
local members = redis.call('ZRANGEBYLEX', times, '-', most, 'LIMIT', 0, ARGV[3])
for _, member in ipairs(members) do
  local field, learner = string.match(member, '^([^/]*)/(.*)$')
  drop_row(KEYS[2] .. learner, times, field, learner)
end
if before == '' then
  if #members < tonumber(ARGV[3]) then
    redis.call('HDEL', logs, uid, uid .. ':from')
  end
-- it only grows: a reward that comes late must not make a row again that was dropped
elseif #members > 0 and tonumber(before) > tonumber(redis.call('HGET', logs, uid .. ':from') or '0') then
  redis.call('HSET', logs, uid .. ':from', before)
end
return #members
