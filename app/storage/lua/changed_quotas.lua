-- WITH   quota
-- KEYS   changes, closed; quotas of the bandit
-- ARGV   last change that is known or ''
-- Result {time in ms, changes}; or, where it is not known what has changed since, {time, last change, all records, closed}
local changes = changes_since(ARGV[1])
if changes[1] and changes[1][1] == ARGV[1] then
  return { now, changes }
end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return { now, last and last[1] or '', redis.call('HGETALL', KEYS[3]), redis.call('HGETALL', KEYS[2]) }
