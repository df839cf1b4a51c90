-- KEYS   the turns of a learner: 'taken' -> how many, 'c' .. claim -> the first of those it took
-- ARGV   count, most, claim or '', ttl_ms
-- Result the first turn that is now the caller's, or at least `most` when all are taken
-- Effect in one step: the turns are taken, at most once for a claim; nothing when all are
local claimed = ARGV[3] ~= '' and redis.call('HGET', KEYS[1], 'c' .. ARGV[3])
if claimed then
  return tonumber(claimed)
end
local taken = tonumber(redis.call('HGET', KEYS[1], 'taken') or '0')
if taken >= tonumber(ARGV[2]) then
  return taken
end
redis.call('HINCRBY', KEYS[1], 'taken', ARGV[1])
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'c' .. ARGV[3], taken)
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return taken
