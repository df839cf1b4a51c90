-- WITH   changes, tails, many
-- KEYS   watermark, log, dead letters, changes, deleted, folded, spaces, then for each bandit: states, tails,
--        sums of its arms
-- ARGV   expected watermark, new watermark, changes kept, number of dead letters, number of moves, number of arms, for
--        each dead letter: entry id, reason; for each move: uid of its bandit, its number; then for each bandit: how many
--        entries were folded, how many of them forgot a learner or gave it a state; for each arm: number of its bandit,
--        arm, its sums or '' to remove them, '1' if it had some when they were read else '';
--        then for each learner: number of its bandit (from 1), learner, '1' and a checkpoint, or '' and '' to
--        remove it, or 't' and the entry ids that go to the end of its tail, with spaces between them
-- Result 1 when applied, 0 when the watermark is not the expected one
-- Effect in one step: all checkpoints, tails, sums of arms, dead letters, moves, changes and the watermark change together, or nothing
--        does. A checkpoint takes the place of the tail. A dead letter is its entry of the log, under the same id,
--        and the reason. Learners of a deleted bandit are left out: their entries came when it was still there.
--        So are sums that were there and are not any more: they were merged (merge_arm_sums.lua).
--        A watermark that stays says that no learner has changed, and no change is noted.
if (redis.call('GET', KEYS[1]) or '0-0') ~= ARGV[1] then
  return 0
end
local number, a = string.match(ARGV[2], '%d+$'), 7
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
-- Of each bandit: whether it is deleted and whether it has tails, asked once for all its learners; and what is written
-- with one command for all of them.
local bandits = {}
for k = 8, #KEYS, 3 do
  -- Each key of states ends with the uid of its bandit, which has no colon.
  local uid = string.match(KEYS[k], '[^:]+$')
  local is_deleted = redis.call('ZSCORE', KEYS[5], uid)
  bandits[#bandits + 1] = {
    k = k,
    uid = uid,
    is_deleted = is_deleted,
    has_tails = redis.call('EXISTS', KEYS[k + 1]) == 1,
    sums = {},
    dropped = {},
    states = {},
    tails = {},
  }
  local entries, replaced = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  if entries > 0 and not is_deleted then
    redis.call('HINCRBY', KEYS[6], uid, entries)
    if replaced > 0 then
      redis.call('HINCRBY', KEYS[6], uid .. ':replaced', replaced)
    end
  end
  a = a + 2
end
for _ = 1, tonumber(ARGV[6]) do
  local bandit = bandits[tonumber(ARGV[a])]
  local sums, dropped = bandit.sums, bandit.dropped
  if ARGV[a + 2] == '' then
    dropped[#dropped + 1] = ARGV[a + 1]
  elseif ARGV[a + 3] == '' or redis.call('HEXISTS', KEYS[bandit.k + 2], ARGV[a + 1]) == 1 then
    sums[#sums + 1], sums[#sums + 2] = ARGV[a + 1], ARGV[a + 2]
  end
  a = a + 4
end
local changes = {}
for s = a, #ARGV, 4 do
  local bandit, learner, kind = bandits[tonumber(ARGV[s])], ARGV[s + 1], ARGV[s + 2]
  local k, member = bandit.k, bandit.uid .. learner
  if not bandit.is_deleted then
    if kind == 't' then
      local tails, stem = bandit.tails, tail_stem(learner)
      for id in string.gmatch(ARGV[s + 3], '%S+') do
        tails[#tails + 1], tails[#tails + 2] = '0', tail_member(stem, id)
      end
    else
      if bandit.has_tails then
        redis.call('ZREMRANGEBYLEX', KEYS[k + 1], tail_range(tail_stem(learner)))
      end
      if kind == '1' then
        local states = bandit.states
        states[#states + 1], states[#states + 2] = learner, ARGV[s + 3]
      else
        redis.call('HDEL', KEYS[k], learner)
        -- other processes drop more of a learner that was removed than its state: its elimination, its exposures
        changes[#changes + 1], changes[#changes + 2] = number, '-' .. member
      end
    end
    if moves then
      changes[#changes + 1], changes[#changes + 2] = number, member
    end
  end
end
for _, bandit in ipairs(bandits) do
  if not bandit.is_deleted then
    call_with_many('HSET', KEYS[bandit.k + 2], bandit.sums)
    call_with_many('HDEL', KEYS[bandit.k + 2], bandit.dropped)
    call_with_many('HSET', KEYS[bandit.k], bandit.states)
    call_with_many('ZADD', KEYS[bandit.k + 1], bandit.tails)
  end
end
call_with_many('ZADD', KEYS[4], changes)
shorten(KEYS[4], tonumber(ARGV[3]))
if moves then
  redis.call('SET', KEYS[1], ARGV[2])
end
return 1
