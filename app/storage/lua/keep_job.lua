-- KEYS   heads, results, until, alive of jobs
-- ARGV   job, head, result or '', lease_ms, keep_ms, most jobs of all, most of its bandit, most bytes of all results;
--        'new' or 'known'
-- Result 'kept'; 'full' if there are as many, or as large ones, as may be; 'missing' if it is not new and was deleted
-- Effect in one step: jobs whose time is over are dropped, then the job is as given, unless it is full or missing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local job, result = ARGV[1], ARGV[3]
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now))) do
  redis.call('HDEL', KEYS[1], old)
  redis.call('HDEL', KEYS[2], old)
  redis.call('ZREM', KEYS[3], old)
  redis.call('ZREM', KEYS[4], old)
end
local is_there = redis.call('HEXISTS', KEYS[1], job) == 1
-- A job that was deleted while it ran must not come back by its next report.
if ARGV[9] == 'known' and not is_there then
  return 'missing'
end
if not is_there then
  local bandit, own, all = string.match(job, '^[^/]*/'), 0, redis.call('HKEYS', KEYS[1])
  for _, other in ipairs(all) do
    if string.sub(other, 1, #bandit) == bandit then
      own = own + 1
    end
  end
  if #all >= tonumber(ARGV[6]) or own >= tonumber(ARGV[7]) then
    return 'full'
  end
end
if result ~= '' then
  local bytes = #result
  for _, other in ipairs(redis.call('HKEYS', KEYS[2])) do
    if other ~= job then
      bytes = bytes + redis.call('HSTRLEN', KEYS[2], other)
    end
  end
  if bytes > tonumber(ARGV[8]) then
    return 'full'
  end
  redis.call('HSET', KEYS[2], job, result)
end
redis.call('HSET', KEYS[1], job, ARGV[2])
redis.call('ZADD', KEYS[3], string.format('%.0f', now + ARGV[5]), job)
redis.call('ZADD', KEYS[4], string.format('%.0f', now + ARGV[4]), job)
return 'kept'
