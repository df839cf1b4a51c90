-- KEYS   quotas of a bandit, changes
-- ARGV   number of a change
-- Result {number of the last change, whether all follow, quota, record or '', ..}: what has changed since, or all
--        records where that is not known.
local after = tonumber(ARGV[1])
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
local number = tonumber(last[2]) or 0
local answer
if after > 0 and after <= number and after >= tonumber(first[2]) - 1 then
  answer = { number, 0 }
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf')) do
    table.insert(answer, id)
    table.insert(answer, redis.call('HGET', KEYS[1], id) or '')
  end
  return answer
end
answer = { number, 1 }
for _, each in ipairs(redis.call('HGETALL', KEYS[1])) do
  table.insert(answer, each)
end
return answer
