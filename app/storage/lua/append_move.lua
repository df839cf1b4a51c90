-- WITH   log_tail
-- KEYS   log, watermark, spaces, deleted
-- ARGV   uid of the bandit, name of the learner that stands for all, number of the move, payload
-- Result 1 when the entry was appended, else 0
-- Effect in one step: unless the log has the move, or the bandit is deleted, its entry is appended, and it is noted
--        that the log has it. Repeated, it changes nothing.
local field = ARGV[1] .. ':log'
local had = tonumber(redis.call('HGET', KEYS[3], field) or '0')
if had >= tonumber(ARGV[3]) or redis.call('ZSCORE', KEYS[4], ARGV[1]) then
  return 0
end
redis.call('XADD', KEYS[1], next_id(KEYS[1], KEYS[2])(), 'b', ARGV[1], 'l', ARGV[2], 'p', ARGV[4])
redis.call('HSET', KEYS[3], field, ARGV[3])
return 1
