-- WITH   log_tail, dedupe, rows
-- KEYS   for each partition: log, watermark, refused, seen-ends; then for each of its rewards: the hash of the dedupe keys
--        of its decision (seen-until), or its dedupe key when it has no decision; forgotten; and if its decision is in the
--        decision log: deleted, row-logs, rows, row-times
-- ARGV   number of partitions; then for each partition: how many of KEYS and how many of ARGV are its own, number of
--        rewards; for each reward: a map in msgpack, its payload; and if its decision is in the decision log: the record
--        of its row, what is put at the end of that. The map (reward_log.py):
--          bandit, learner, known    known: the newest entry of the log that was known to its decision
--          expires, ends             of its decision, and the last of the ms in the name of the hash; else only ends,
--                                    the ttl_ms of its dedupe key
--          name                      dedupe key of a reward of a decision; absent where `first` tells what has come
--          first, letter, kind, number   decision key, absent where only the first reward counts; its signal; 's' of
--                                    those that are summed, 'l' if the last counts, else 'f'; the reward; `at`: when
--                                    the last was
--          field, keep_ms            of its row
-- Result for each partition {for each reward its entry id, behind 'revised ' if it took the place of one above 0, or
--        'duplicate ' and the id of the newest entry, or 'forgotten', or 'expired'}, or an error
-- Effect in one step: every reward whose learner was not forgotten after its decision, whose decision is not
--        refused as expired and which has not come before is appended. Its dedupe keys are then taken: those of a decision
--        until all that expires as early is refused, others for ttl_ms. The entry of one that is not the first of its
--        decision and arm says what had come before it ('c'). It is put at the end of the row of its decision, which is
--        made if it is not there; what it takes the place of is taken out of that. Repeated, it changes nothing. Other
--        partitions are not refused when a key of one is broken.
local match, gsub = string.match, string.gsub

-- The reward whose keys and arguments begin at k and a, and where those after it begin.
local function reward_at(k, a)
  local reward = cmsgpack.unpack(ARGV[a])
  reward.home = KEYS[k]
  if reward.field then
    return reward, k + 6, a + 4
  end
  return reward, k + 2, a + 2
end

-- What is kept under its decision key, as 'A1B0.5C2@1700000000000', behind 'd' if the default was counted before; and
-- what has come of its signal. Both are nil where nothing has.
local function came(reward)
  local had = reward.first and redis.call('HGET', reward.home, reward.first) or nil
  return had, had and match(had, reward.letter .. '([^%u]*)')
end

local function value_and_time(text)
  local number, at = match(text, '^([^@]*)@?(%d*)$')
  return tonumber(number) or 0, tonumber(at) or 0
end

-- Whether what has come of the signal of a reward (nil: nothing) stands against it: always where the first counts; where
-- the last does, unless the reward is later, or as late and larger; not where they are summed.
local function stands(own, reward)
  if not own or reward.kind ~= 'l' then
    return own and reward.kind == 'f'
  end
  local had, had_at = value_and_time(own)
  local new, new_at = value_and_time(reward.number)
  return new_at < had_at or (new_at == had_at and new <= had)
end

-- Keep the value of a signal under its decision key, beside what had come.
local function keep_value(ends, reward, had, own)
  local letter, home, first, text = reward.letter, reward.home, reward.first, reward.letter .. reward.number
  if own and reward.kind == 's' then
    -- 17 digits give back every float64
    text = letter .. string.format('%.17g', (tonumber(own) or 0) + tonumber(reward.number))
  end
  if not had then
    return take(ends, home, reward.ends, first, text)
  end
  local now_kept = own and gsub(had, letter .. '[^%u]*', text) or had .. text
  redis.call('HSET', home, first, now_kept)
end

-- Put a reward at the end of the row of its decision, whose keys and arguments end before k and a.
local function log_reward(k, a, reward, is_revised)
  local deleted, logs, rows, times = unpack(KEYS, k - 4, k - 1)
  if is_kept(deleted, logs, reward.bandit, reward.field) then
    redis.call('HSETNX', logs, reward.bandit, reward.keep_ms)
    keep_row(rows, times, reward.field, reward.learner, reward.known, ARGV[a - 2], '')
    add_reward(rows, reward.field, ARGV[a - 1], is_revised)
  end
end

-- Of a store that was put back from a copy, a decision may know entries that are not in it. What it knows is beyond all
-- that is counted from now on, so drop_expired would not refuse it: it does from here on.
local function note_known(refused, known)
  local bound = redis.call('HGET', refused, 'known')
  if not bound or tonumber(bound) < tonumber(known) then
    redis.call('HSET', refused, 'known', known)
  end
end

-- Append the rewards of one partition, whose keys and arguments begin at k and a.
local function append(k, a, rewards)
  local log, watermark, refused, ends = unpack(KEYS, k, k + 3)
  k = k + 4
  local next, newest, _, number = next_id(log, watermark)
  local is_refused = refusals(refused)
  local reward, k_after, a_after

  -- Append a reward, whose keys and arguments begin at k and a, and end before k_after and a_after. Returns 'duplicate',
  -- 'forgotten', 'expired', or nil and whether it took the place of one above 0.
  local function append_reward()
    local home, had, own = reward.home, nil, nil
    if is_forgotten(KEYS[k + 1], reward.known) then
      return 'forgotten'
    elseif not reward.expires then
      -- It has no time by which it could be refused once its key is dropped. So its key expires by the clock.
      if not redis.call('SET', home, '', 'NX', 'PX', reward.ends) then
        return 'duplicate'
      end
    else
      had, own = came(reward)
      local name, is_standing = reward.name, stands(own, reward)
      if is_refused(reward.expires, reward.known) then
        -- Its dedupe keys may be dropped, so it can count no more. If they are still there it is a duplicate.
        return (is_standing or name and is_taken(home, name)) and 'duplicate' or 'expired'
      elseif is_standing or name and not take(ends, home, reward.ends, name, '') then
        return 'duplicate'
      end
      if tonumber(reward.known) > number then
        note_known(refused, reward.known)
      end
      if reward.first then
        keep_value(ends, reward, had, own)
      end
    end
    newest = next()
    if had then
      local earlier = gsub(gsub(had, '^d', ''), '@%d+', '')
      redis.call('XADD', log, newest, 'b', reward.bandit, 'l', reward.learner, 'p', ARGV[a + 1], 'c', earlier)
    else
      redis.call('XADD', log, newest, 'b', reward.bandit, 'l', reward.learner, 'p', ARGV[a + 1])
    end
    local is_revised = own and reward.kind == 'l'
    if reward.field then
      log_reward(k_after, a_after, reward, is_revised)
    end
    return nil, is_revised and value_and_time(own) > 0
  end

  local answer = {}
  for i = 1, rewards do
    reward, k_after, a_after = reward_at(k, a)
    local refusal, is_revised = append_reward()
    local status = refusal and (refusal == 'duplicate' and 'duplicate ' .. newest or refusal) or newest
    answer[i] = is_revised and 'revised ' .. status or status
    k, a = k_after, a_after
  end
  return answer
end

local answers, k, a = {}, 1, 2
for p = 1, tonumber(ARGV[1]) do
  local is_done, answer = pcall(append, k, a + 3, tonumber(ARGV[a + 2]))
  -- Redis 6.2 raises the text of an error, later versions a table
  answers[p] = (is_done or type(answer) == 'table') and answer or { err = answer }
  k, a = k + tonumber(ARGV[a]), a + tonumber(ARGV[a + 1])
end
return answers
