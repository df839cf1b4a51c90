-- KEYS   watermark, log, dead letters, changes, deleted, then the states hashes that are written
-- ARGV   expected watermark, new watermark, changes kept, number of dead letters, for each: entry id, reason;
--        then for each state: number of its hash (from 1), learner, '1' to write or '' to remove, state
-- Result 1 when applied, 0 when the watermark is not the expected one
-- Effect in one step: all states, dead letters, changes and the watermark change together, or nothing does. A
--        dead letter is its entry of the log, under the same id, and the reason. States of a deleted bandit are
--        left out: their entries came when it was still there.
if (redis.call('GET', KEYS[1]) or '0-0') ~= ARGV[1] then
  return 0
end
local number, a = tonumber(string.match(ARGV[2], '%d+$')), 5
for _ = 1, tonumber(ARGV[4]) do
  local entry = redis.call('XRANGE', KEYS[2], ARGV[a], ARGV[a])[1]
  if entry then
    local fields = entry[2]
    fields[#fields + 1], fields[#fields + 2] = 'r', ARGV[a + 1]
    redis.call('XADD', KEYS[3], ARGV[a], unpack(fields))
  end
  a = a + 2
end
local deleted = {}
for k = 6, #KEYS do
  deleted[k] = redis.call('ZSCORE', KEYS[5], string.sub(KEYS[k], -16))
end
for s = a, #ARGV, 4 do
  local k, learner = 5 + tonumber(ARGV[s]), ARGV[s + 1]
  local uid = string.sub(KEYS[k], -16)
  if not deleted[k] then
    if ARGV[s + 2] == '1' then
      redis.call('HSET', KEYS[k], learner, ARGV[s + 3])
    else
      redis.call('HDEL', KEYS[k], learner)
      note(KEYS[4], number, '-' .. uid .. learner)
    end
    note(KEYS[4], number, uid .. learner)
  end
end
shorten(KEYS[4], tonumber(ARGV[3]))
redis.call('SET', KEYS[1], ARGV[2])
return 1
