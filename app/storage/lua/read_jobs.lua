-- KEYS   heads, results, until, alive of jobs
-- ARGV   the name of a bandit's job, with its result; or that of a bandit with a slash, for all of its jobs without
-- Result {job, head, 1 if its process lives, result or '' ..} of those whose time is not over
-- Effect none.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local asked, found = ARGV[1], {}
local is_one = string.sub(asked, -1) ~= '/'
for _, job in ipairs(is_one and { asked } or redis.call('HKEYS', KEYS[1])) do
  local ends = tonumber(redis.call('ZSCORE', KEYS[3], job) or 0)
  if string.sub(job, 1, #asked) == asked and ends > now then
    found[#found + 1] = job
    found[#found + 1] = redis.call('HGET', KEYS[1], job)
    found[#found + 1] = tonumber(redis.call('ZSCORE', KEYS[4], job) or 0) > now and 1 or 0
    found[#found + 1] = is_one and redis.call('HGET', KEYS[2], job) or ''
  end
end
return found
