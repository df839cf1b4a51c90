-- WITH   changes, tails, arm_sums
-- KEYS   watermark, log, dead letters, changes, deleted, folded, spaces, ledger, then for each bandit: states, tails,
--        stem of the kept keys, sums of its arms
-- ARGV   expected watermark, new watermark, changes kept, number of dead letters, number of moves, number of arms, for
--        each dead letter: entry id, reason; for each move: uid of its bandit, its number; then for each bandit: how many
--        entries were folded, how many of them forgot a learner or gave it a state; for each arm: number of its bandit,
--        arm, its sums or '' to remove them;
--        then for each learner: number of its bandit (from 1), learner, '1' and a checkpoint, or '' and '' to
--        remove it, or 't' and the entry ids that go to the end of its tail, with spaces between them
-- Result 1 when applied, 0 when the watermark is not the expected one
-- Effect in one step: all checkpoints, tails, sums of arms, dead letters, moves, changes and the watermark change together, or nothing
--        does. A checkpoint takes the place of the tail. A dead letter is its entry of the log, under the same id,
--        and the reason. Learners of a deleted bandit are left out: their entries came when it was still there.
--        A watermark that stays says that no learner has changed, and no change is noted.
if (redis.call('GET', KEYS[1]) or '0-0') ~= ARGV[1] then
  return 0
end
local number, a = tonumber(string.match(ARGV[2], '%d+$')), 7
for _ = 1, tonumber(ARGV[4]) do
  local entry = redis.call('XRANGE', KEYS[2], ARGV[a], ARGV[a])[1]
  if entry then
    local fields = entry[2]
    fields[#fields + 1], fields[#fields + 2] = 'r', ARGV[a + 1]
    redis.call('XADD', KEYS[3], ARGV[a], unpack(fields))
  end
  a = a + 2
end
for _ = 1, tonumber(ARGV[5]) do
  if not redis.call('ZSCORE', KEYS[5], ARGV[a]) then
    redis.call('HSET', KEYS[7], ARGV[a], ARGV[a + 1])
  end
  a = a + 2
end
local moves = ARGV[1] ~= ARGV[2]
local deleted, has_tails = {}, {}
-- Each key of states ends with the uid of its bandit, which has no colon.
local uids = {}
for k = 9, #KEYS, 4 do
  uids[k] = string.match(KEYS[k], '[^:]+$')
  deleted[k] = redis.call('ZSCORE', KEYS[5], uids[k])
  -- asked once for each bandit, not for each of its learners
  has_tails[k] = redis.call('EXISTS', KEYS[k + 1]) == 1
  local entries, replaced = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  if entries > 0 and not deleted[k] then
    redis.call('HINCRBY', KEYS[6], uids[k], entries)
    if replaced > 0 then
      redis.call('HINCRBY', KEYS[6], uids[k] .. ':replaced', replaced)
    end
  end
  a = a + 2
end
for _ = 1, tonumber(ARGV[6]) do
  local k = 5 + 4 * tonumber(ARGV[a])
  if not deleted[k] then
    write_sums(KEYS[8], KEYS[k + 3], ARGV[a + 1], ARGV[a + 2])
  end
  a = a + 3
end
for s = a, #ARGV, 4 do
  local k, learner, kind = 5 + 4 * tonumber(ARGV[s]), ARGV[s + 1], ARGV[s + 2]
  local uid = uids[k]
  if not deleted[k] then
    if kind == 't' then
      local stem = tail_stem(learner)
      for id in string.gmatch(ARGV[s + 3], '%S+') do
        redis.call('ZADD', KEYS[k + 1], 0, tail_member(stem, id))
      end
    else
      if has_tails[k] then
        redis.call('ZREMRANGEBYLEX', KEYS[k + 1], tail_range(tail_stem(learner)))
      end
      if kind == '1' then
        redis.call('HSET', KEYS[k], learner, ARGV[s + 3])
      else
        redis.call('HDEL', KEYS[k], learner)
        redis.call('HDEL', KEYS[k + 2] .. '0', learner)
        redis.call('HDEL', KEYS[k + 2] .. '1', learner)
        -- other processes drop more of a learner that was removed than its state: its elimination, its exposures
        note(KEYS[4], number, '-' .. uid .. learner)
      end
    end
    if moves then
      note(KEYS[4], number, uid .. learner)
    end
  end
end
shorten(KEYS[4], tonumber(ARGV[3]))
if moves then
  redis.call('SET', KEYS[1], ARGV[2])
end
return 1
