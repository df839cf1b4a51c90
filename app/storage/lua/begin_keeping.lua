-- KEYS   kept, deleted
-- ARGV   uid of the bandit, watermark, ms when what is kept goes
-- Result 1
-- Effect in one step: what was kept before goes, and the watermark is noted; nothing of a deleted bandit.
redis.call('DEL', KEYS[1])
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  redis.call('HSET', KEYS[1], '', ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], ARGV[3])
end
return 1
