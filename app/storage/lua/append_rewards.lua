-- WITH   log_tail, dedupe, ledger, dedupe_keys, rows
-- KEYS   for each partition: log, watermark, refused, seen-ends, ledger; then for each of its rewards: the hash of the
--        dedupe keys of its decision (seen-until), or its dedupe key when it has no decision; forgotten; and if its
--        decision is in the decision log: deleted, row-logs, rows, row-times
-- ARGV   number of partitions; then for each partition: how many of KEYS and how many of ARGV are its own, number of
--        calls; for each call: most bytes of dedupe keys, how long the names of those below are together, number of
--        rewards; for each reward: bandit uid, learner, known entry, payload; of a decision
--        expires_ms, the last of the ms in the name of its hash, dedupe key, decision key or ''; without a decision
--        '', ttl_ms, '', ''; then the reward if those with its decision key are summed, or that of a signal: its
--        letter, 's' if it is summed, 'l' if the last counts, else 'f', and the reward, of the last with '@' and when
--        it was; or ''; what it is of, or ''; field of its row, or '' if its decision is not in the decision log, else
--        also: keep_ms, record of the row, what is put at the end of the row
-- Result for each partition {bytes of dedupe keys that are held now, for each call {for each reward its entry id,
--        behind 'revised ' if it took the place of one above 0, or 'duplicate ' and the id of the newest entry, or
--        'forgotten', or 'expired'}, or -1 when there is no space for all that are new}, or an error
-- Effect in one step: every reward whose learner was not forgotten after its decision, whose decision is not
--        refused as expired and whose dedupe key is new is appended. Its dedupe keys are then taken, and counted:
--        those of a decision until all that expires as early is refused, others for ttl_ms. One that comes after
--        its default was counted ('d') is marked as its replacement ('r'). Of rewards that are summed, the decision key
--        has their sum, and each entry says what it was before ('s', unless 0). Of signals it has what has come of
--        each, as 'A1B0.5C2@1700000000000', behind 'd' if the default was counted before, and each entry says what had
--        come before it (behind 'f', without the times). One that has come and is not summed is a duplicate; of those
--        of which the last counts only if it is not later, or as late and not larger. It is put at the end of the row
--        of its decision, which is made if it is not there; what it takes the place of is taken out of that. Repeated,
--        it changes nothing. Of a call without space for all its new dedupe keys nothing is done; the others are not
--        refused with it. Nor are other partitions when a key of one is broken.
local match = string.match
local HEAD, REWARD, ROW_OF_REWARD = 3, 11, 3 -- arguments of a call, of a reward, and of its row

-- Where the keys and the arguments after a reward begin.
local function after_reward(k, a, field)
  if field == '' then
    return k + 2, a + REWARD
  end
  return k + 6, a + REWARD + ROW_OF_REWARD
end

local function sum_of(bytes)
  local sum = 0
  for _, more in pairs(bytes) do
    sum = sum + more
  end
  return sum
end

-- What is kept of the signals of a decision and arm (false: nothing), and what has come of this one; nil: not of one.
local function came(home, first, value)
  local letter, kind, number = match(value, '^(%u)(%l)(.*)$')
  if letter then
    local had = redis.call('HGET', home, first)
    return letter, kind, number, had, had and match(had, letter .. '([^%u]*)')
  end
end

local function value_and_time(text)
  local number, at = match(text, '^([^@]*)@?(%d*)$')
  return tonumber(number), tonumber(at) or 0
end

-- Whether what has come of a signal (nil: nothing) stands against another reward.
local function stands(own, kind, number)
  if not own or kind ~= 'l' then
    return own and kind == 'f'
  end
  local had, had_at = value_and_time(own)
  local new, new_at = value_and_time(number)
  return new_at < had_at or (new_at == had_at and new <= had)
end

-- Bytes of the dedupe keys of a call that are new, which takes two reads for each reward; and where the keys and the
-- arguments after it begin.
local function new_bytes(is_refused, k, a, rewards)
  local new = {}
  for _ = 1, rewards do
    local _, _, known, _, expires, _, name, first, value, _, field = unpack(ARGV, a, a + REWARD - 1)
    local home, counts = KEYS[k], not is_forgotten(KEYS[k + 1], known)
    if counts and expires == '' and redis.call('EXISTS', home) == 0 then
      new[home] = KEY + rounded_up(#home)
    elseif counts and expires ~= '' and match(value, '^%u[fl]') then
      local _, _, _, had, own = came(home, first, value)
      if not own and not is_refused(expires, known) then
        local more = had and rounded_up(#value) + NUMBER or field_bytes(first, value)
        new[home .. first] = math.max(new[home .. first] or 0, more)
      end
    elseif counts and expires ~= '' and not is_refused(expires, known) and not is_taken(home, name) then
      new[home .. name] = field_bytes(name, '')
      if first ~= '' and not is_taken(home, first) then
        new[home .. first] = field_bytes(first, value)
      end
    end
    k, a = after_reward(k, a, field)
  end
  return sum_of(new), k, a
end

local function log_reward(k, a, bandit, learner, known, is_revised)
  local deleted, logs, rows, times = unpack(KEYS, k + 2, k + 5)
  local field, keep_ms, record, reward = unpack(ARGV, a + REWARD - 1, a + REWARD + 2)
  if is_kept(deleted, logs, bandit, field) then
    redis.call('HSETNX', logs, bandit, keep_ms)
    keep_row(rows, times, field, learner, known, record)
    add_reward(rows, field, reward, is_revised)
  end
end

-- Append the rewards of some calls to one partition, whose keys and arguments begin at k and a.
local function append(k, a, calls)
  local log, watermark, refused, ends, ledger = unpack(KEYS, k, k + 4)
  k = k + 5
  local next, newest, now, number = next_id(log, watermark)
  local is_refused = refusals(refused)
  -- an earlier partition may have failed before it was counted
  taken, before, rows_added = {}, {}, 0

  -- The field of the ledger for dedupe keys without a decision.
  local periods_of = {}
  local function part_for(ttl_ms)
    local part = periods_of[ttl_ms] or field_of('dedupe', period_of(now + tonumber(ttl_ms)))
    periods_of[ttl_ms] = part
    return part
  end

  -- what nearly always all of them add to
  local expires, until_or_ttl = unpack(ARGV, a + HEAD + 4, a + HEAD + 5)
  local part = expires == '' and part_for(until_or_ttl) or part_of(until_or_ttl)
  local bytes, part_held = held(ledger, 'dedupe', now, part)
  before[part] = part_held or '0'

  local answer = { 0 }
  for c = 1, calls do
    local space, length, rewards = unpack(ARGV, a, a + HEAD - 1)
    space, rewards, a = tonumber(space), tonumber(rewards), a + HEAD
    local bytes_held, new, k_after, a_after = bytes + sum_of(taken), 0, nil, nil
    -- which of them are new is looked up only where space is short
    if bytes_held + 2 * KEY * rewards + rounded_up(tonumber(length)) > space then -- if all were new
      new, k_after, a_after = new_bytes(is_refused, k, a, rewards)
    end
    if new > 0 and bytes_held + new > space then
      answer[c + 1], k, a, rewards = -1, k_after, a_after, 0
    else
      answer[c + 1] = {}
    end
    for i = 1, rewards do
      local home = KEYS[k]
      local bandit, learner, known, payload, expires, ends_ms, name, first, value, source, field =
        unpack(ARGV, a, a + REWARD - 1)
      -- kind: '1' the first reward of its decision and arm, '0' a later one, 'r' one in place of the default
      local kind, sum, status = '1', 0, nil
      local letter, kept_as, number_of, had, own
      if value ~= '' then
        letter, kept_as, number_of, had, own = came(home, first, value)
      end
      local is_kept_there = kept_as == 'f' or kept_as == 'l' -- under the decision key: there is no dedupe key besides
      local is_standing = own and stands(own, kept_as, number_of)
      if is_forgotten(KEYS[k + 1], known) then
        status = 'forgotten'
      elseif expires == '' then
        -- An observation has no time by which it could be refused once its key is dropped. So its key expires by the
        -- clock.
        if redis.call('SET', home, '', 'NX', 'PX', ends_ms) then
          local own_part = part_for(ends_ms)
          taken[own_part] = (taken[own_part] or 0) + KEY + rounded_up(#home)
        else
          status = 'duplicate ' .. newest
        end
      elseif is_refused(expires, known) then
        -- Its dedupe keys may be dropped, so it can count no more. If they are still there it is a duplicate.
        local is_known = is_standing
        if not is_kept_there then
          is_known = is_taken(home, name)
        end
        status = is_known and 'duplicate ' .. newest or 'expired'
      elseif is_standing or not is_kept_there and not take(ledger, ends, home, ends_ms, name, '') then
        status = 'duplicate ' .. newest
      else
        -- Of a store that was put back from a copy, a decision may know entries that are not in it. What it knows is
        -- beyond all that is counted from now on, so drop_expired would not refuse it: it does from here on.
        if tonumber(known) > number then
          local bound = redis.call('HGET', refused, 'known')
          if not bound or tonumber(bound) < tonumber(known) then
            redis.call('HSET', refused, 'known', known)
          end
        end
        if letter then
          local text = letter .. number_of
          if own and kept_as == 's' then
            -- 17 digits give back every float64
            text = letter .. string.format('%.17g', tonumber(own) + tonumber(number_of))
          end
          if had then
            kind = not own and string.sub(had, 1, 1) == 'd' and 'r' or '0'
            local now_kept = own and string.gsub(had, letter .. '[^%u]*', text) or had .. text
            redis.call('HSET', home, first, now_kept)
            local part_of_it = part_of(ends_ms)
            taken[part_of_it] = (taken[part_of_it] or 0) + field_bytes(first, now_kept) - field_bytes(first, had)
          else
            take(ledger, ends, home, ends_ms, first, text)
          end
        elseif first ~= '' and not take(ledger, ends, home, ends_ms, first, value) then
          local had = redis.call('HGET', home, first)
          kind = had == 'd' and 'r' or '0'
          if value ~= '' then
            sum = tonumber(had) or 0 -- 'd' of a default, '' of what was not summed
            redis.call('HSET', home, first, string.format('%.17g', sum + tonumber(value)))
          elseif kind == 'r' then
            redis.call('HSET', home, first, '')
          end
        end
      end
      if not status then
        status = next()
        newest = status
        if had then
          kind = kind .. string.gsub(string.gsub(had, '^d', ''), '@%d+', '')
        end
        if source == '' and sum == 0 then -- a list of fields that is taken apart costs as much as the rest of this
          redis.call('XADD', log, status, 'b', bandit, 'l', learner, 'f', kind, 'p', payload)
        else
          local fields = { 'b', bandit, 'l', learner, 'f', kind, 'p', payload }
          if source ~= '' then
            fields[9], fields[10] = 'd', source
          end
          if sum ~= 0 then
            fields[#fields + 1], fields[#fields + 2] = 's', string.format('%.17g', sum)
          end
          redis.call('XADD', log, status, unpack(fields))
        end
        if field ~= '' then
          log_reward(k, a, bandit, learner, known, own and kept_as == 'l')
        end
        if own and kept_as == 'l' and value_and_time(own) > 0 then
          status = 'revised ' .. status
        end
      end
      answer[c + 1][i] = status
      k, a = after_reward(k, a, field)
    end
  end
  count_rows(ledger)
  answer[1] = count_taken(ledger, bytes)
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
