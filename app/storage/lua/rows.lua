-- Put before every script that changes rows of the decision log.
-- A row is a field of the hash of its learner (rows): "<ms>-<decision id>", the ms with 13 digits. Its value is
-- "<known entry>:<length of the record>:", the record, and the rewards that came, one after the other. Where its
-- candidates are kept it is "<known entry>:<length>+<length of the candidates>:", the record, candidates and rewards.
-- The sorted set of its bandit (row-times) has the member "<field>/<learner>" for it, and none without a row. What the
-- partition keeps of each bandit's log is in the hash row-logs: see redis_keys.
local MOST_REWARDS = 65536 -- bytes of those of a row

-- Of each bandit in each partition that this call has asked about: the ms before which rows were dropped; math.huge:
-- it is deleted.
local kept_from = {}

-- Whether a row is to be kept: its bandit is not deleted, and rows as old were not dropped.
local function is_kept(deleted, logs, bandit, field)
  local from = kept_from[logs .. bandit]
  if not from then
    local is_deleted = redis.call('ZSCORE', deleted, bandit)
    from = is_deleted and math.huge or tonumber(redis.call('HGET', logs, bandit .. ':from') or '0')
    kept_from[logs .. bandit] = from
  end
  return tonumber(string.sub(field, 1, 13)) >= from
end

-- What a row is before its rewards, and they.
local function parts_of(value)
  local record, candidates, start = string.match(value, '^%d+:(%d+)%+?(%d*):()')
  local stop = start - 1 + tonumber(record) + (tonumber(candidates) or 0)
  return string.sub(value, 1, stop), string.sub(value, stop + 1), candidates ~= ''
end

-- Keep a row unless it is there, or there is no record of it. ``candidates``: '' where none are kept. A row that a
-- reward has made, which knows the record alone, gets its candidates.
local function keep_row(rows, times, field, learner, known, record, candidates)
  if record == '' then
    return
  end
  local lengths = candidates == '' and #record or #record .. '+' .. #candidates
  local value = known .. ':' .. lengths .. ':' .. record .. candidates
  if redis.call('HSETNX', rows, field, value) == 1 then
    redis.call('ZADD', times, '0', field .. '/' .. learner)
  elseif candidates ~= '' then
    local _, rewards, has_candidates = parts_of(redis.call('HGET', rows, field))
    if not has_candidates then
      redis.call('HSET', rows, field, value .. rewards)
    end
  end
end

-- The rewards of a row without the one that another takes the place of, which is of the same arm and signal (first
-- two and last byte); and the other, which says in the 48th bit and above of its ms how many it has replaced.
local function without_earlier(rewards, reward)
  local size, arm, signal = #reward, string.sub(reward, 1, 2), string.sub(reward, -1)
  for start = 1, #rewards, size do
    local stop = start + size - 1
    if string.sub(rewards, start, start + 1) == arm and string.sub(rewards, stop, stop) == signal then
      local low, high = string.byte(rewards, stop - 2, stop - 1)
      local count = math.min(low + 256 * high + 1, 65535)
      local counted = string.char(count % 256, math.floor(count / 256))
      reward = string.sub(reward, 1, size - 3) .. counted .. signal
      return string.sub(rewards, 1, start - 1) .. string.sub(rewards, stop + 1), reward
    end
  end
  return rewards, reward
end

-- Put a reward at the end of a row, if the row is there. ``is_revised``: it takes the place of an earlier one.
local function add_reward(rows, field, reward, is_revised)
  local value = redis.call('HGET', rows, field)
  if not value then
    return
  end
  local record, rewards = parts_of(value)
  if is_revised then
    rewards, reward = without_earlier(rewards, reward)
  end
  -- further rewards are learned from, but not logged
  if #rewards + #reward <= MOST_REWARDS then
    redis.call('HSET', rows, field, record .. rewards .. reward)
  end
end

local function drop_row(rows, times, field, learner)
  redis.call('HDEL', rows, field)
  redis.call('ZREM', times, field .. '/' .. learner)
end
