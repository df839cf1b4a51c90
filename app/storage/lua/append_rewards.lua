-- WITH   log_tail, dedupe, ledger, dedupe_keys, rows
-- KEYS   log, watermark, refused, seen-ends, ledger; then for each reward: the hash of the dedupe keys of its
--        decision (seen-until), or its dedupe key when it has no decision; forgotten; then, if decisions of some are
--        in the decision log: deleted, row-logs, and for each of them: rows, row-times
-- ARGV   most bytes of dedupe keys, how long the names of those below are together, number of rewards; then for each
--        reward: bandit uid, learner, issued_ms, known entry or '', payload; of a decision expires_ms, the last of
--        the ms in the name of its hash, dedupe key, decision key or ''; without a decision '', ttl_ms, '', '';
--        then the reward if those with its decision key are summed, or that of a signal: its letter, 's' if it is
--        summed, 'l' if the last counts, else 'f', and the reward, of the last with '@' and when it was; or '';
--        what it is of, or '';
--        then for each whose decision is in the decision log: its place from 1, field of the row, keep_ms, record of
--        the row, what is put at the end of the row
-- Result {bytes of dedupe keys that are held now, {for each reward its entry id, behind 'revised ' if it took the
--        place of one above 0, or 'duplicate ' and the id of the newest entry, or 'forgotten', or 'expired'}}, or
--        {-1, {}} when there is no space for all that are new
-- Effect in one step: every reward whose learner was not forgotten after its decision, whose decision is not
--        refused as expired and whose dedupe key is new is appended. Its dedupe keys are then taken, and counted:
--        those of a decision until all that expires as early is refused, others for ttl_ms. One that comes after
--        its default was counted ('d') is marked as its replacement ('r'). Of rewards that are summed, the decision key
--        has their sum, and each entry says what it was before ('s', unless 0). Of signals it has what has come of
--        each, as 'A1B0.5C2@1700000000000', behind 'd' if the default was counted before, and each entry says what had
--        come before it (behind 'f', without the times). One that has come and is not summed is a duplicate; of those
--        of which the last counts only if it is not later, or as late and not larger. It is put at the end of the row
--        of its decision, which is made if it is not there; what it takes the place of is taken out of that. Repeated,
--        it changes nothing. Without space for all new dedupe keys nothing is done.
local log, refused, ends, ledger = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local next, newest, now, number = next_id(log, KEYS[2])
local is_refused = refusals(refused)

-- What is kept of the signals of a decision and arm (false: nothing), and what has come of this one; nil: not of one.
local function came(home, first, value)
  local letter, kind, number = string.match(value, '^(%u)(%l)(.*)$')
  if letter then
    local had = redis.call('HGET', home, first)
    return letter, kind, number, had, had and string.match(had, letter .. '([^%u]*)')
  end
end

local function value_and_time(text)
  local number, at = string.match(text, '^([^@]*)@?(%d*)$')
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

-- The field of the ledger for dedupe keys without a decision.
local periods_of = {}
local function part_for(ttl_ms)
  local part = periods_of[ttl_ms] or field_of('dedupe', period_of(now + tonumber(ttl_ms)))
  periods_of[ttl_ms] = part
  return part
end

local part = ARGV[9] == '' and part_for(ARGV[10]) or part_of(ARGV[10]) -- what nearly always all of them add to
local bytes, part_held = held(ledger, 'dedupe', now, part)
before[part] = part_held or '0'
local space, rewards = tonumber(ARGV[1]), tonumber(ARGV[3])
-- which of them are new is looked up only where space is short: it takes two reads for each reward
if bytes + 2 * KEY * rewards + rounded_up(tonumber(ARGV[2])) > space then -- if all were new
  local new = {} -- bytes of each that is
  for i = 1, rewards do
    local a, k = 11 * i - 7, 4 + 2 * i
    local _, _, issued, known, _, expires, _, name, first, value = unpack(ARGV, a, a + 10)
    local home, counts = KEYS[k], not is_forgotten(KEYS[k + 1], issued, known)
    if counts and expires == '' and redis.call('EXISTS', home) == 0 then
      new[home] = KEY + rounded_up(#home)
    elseif counts and expires ~= '' and string.find(value, '^%u[fl]') then
      local _, _, _, had, own = came(home, first, value)
      if not own and not is_refused(expires, known) then
        local more = had and rounded_up(#value) + NUMBER or field_bytes(first, value)
        new[home .. first] = math.max(new[home .. first] or 0, more)
      end
    elseif counts and expires ~= '' and not is_refused(expires, known) and not is_taken(log, home, name, known) then
      new[home .. name] = field_bytes(name, '')
      if first ~= '' and not is_taken(log, home, first, known) then
        new[home .. first] = field_bytes(first, value)
      end
    end
  end
  local more = 0
  for _, each in pairs(new) do
    more = more + each
  end
  if more > 0 and bytes + more > space then
    return { -1, {} }
  end
end

-- Where the row of each reward is, among the keys and the arguments.
local logged = {}
for i = 1, (#ARGV - 3 - 11 * rewards) / 5 do
  local a = 11 * rewards + 5 * i - 1
  logged[tonumber(ARGV[a])] = { 6 + 2 * rewards + 2 * i, a }
end

local function log_reward(row, bandit, learner, known, is_revised)
  local rows, times = unpack(KEYS, row[1], row[1] + 1)
  local _, field, keep_ms, record, reward = unpack(ARGV, row[2], row[2] + 4)
  local logs = KEYS[7 + 2 * rewards]
  if is_kept(KEYS[6 + 2 * rewards], logs, bandit, field) then
    redis.call('HSETNX', logs, bandit, keep_ms)
    keep_row(rows, times, field, learner, known, record)
    add_reward(rows, field, reward, is_revised)
  end
end

local outcome, k = {}, 4
for i = 1, rewards do
  k = k + 2
  local home, a = KEYS[k], 11 * i - 7
  local bandit, learner, issued, known, payload, expires, ends_ms, name, first, value, source =
      unpack(ARGV, a, a + 10)
  -- kind: '1' the first reward of its decision and arm, '0' a later one, 'r' one in place of the default
  local kind, sum, status = '1', 0, nil
  local letter, kept_as, number_of, had, own = came(home, first, value)
  local is_kept_there = kept_as == 'f' or kept_as == 'l' -- under the decision key: there is no dedupe key besides
  local is_standing = stands(own, kept_as, number_of)
  if is_forgotten(KEYS[k + 1], issued, known) then
    status = 'forgotten'
  elseif expires == '' then
    -- An observation has no time by which it could be refused once its key is dropped. So its key expires by the
    -- clock.
    if redis.call('SET', home, '', 'NX', 'PX', ends_ms) then
      local own = part_for(ends_ms)
      taken[own] = (taken[own] or 0) + KEY + rounded_up(#home)
    else
      status = 'duplicate ' .. newest
    end
  elseif is_refused(expires, known) then
    -- Its dedupe keys may be dropped, so it can count no more. If they are still there it is a duplicate.
    local is_known = is_standing
    if not is_kept_there then
      is_known = is_taken(log, home, name, '')
    end
    status = is_known and 'duplicate ' .. newest or 'expired'
  elseif is_standing or not is_kept_there and not take(log, ledger, ends, home, ends_ms, name, '', known) then
    status = 'duplicate ' .. newest
  else
    -- Of a store that was put back from a copy, a decision may know entries that are not in it. What it knows is
    -- beyond all that is counted from now on, so drop_expired would not refuse it: it does from here on.
    if known ~= '' and tonumber(known) > number then
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
        take(log, ledger, ends, home, ends_ms, first, text, known)
      end
    elseif first ~= '' and not take(log, ledger, ends, home, ends_ms, first, value, known) then
      local had = redis.call('HGET', home, first) or redis.call('GET', string.sub(log, 1, -4) .. first)
      kind = had == 'd' and 'r' or '0'
      if value ~= '' then
        sum = tonumber(had) or 0 -- none was kept by version 0.1.0
        redis.call('HSET', home, first, string.format('%.17g', sum + tonumber(value)))
      elseif kind == 'r' then
        redis.call('HSET', home, first, '')
      end
    end
  end
  if not status then
    status = next()
    newest = status
    local others = had and string.gsub(string.gsub(had, '^d', ''), '@%d+', '') or ''
    local fields = { 'b', bandit, 'l', learner, 'f', kind .. others, 'p', payload }
    if source ~= '' then
      fields[9], fields[10] = 'd', source
    end
    if sum ~= 0 then
      fields[#fields + 1], fields[#fields + 2] = 's', string.format('%.17g', sum)
    end
    redis.call('XADD', log, status, unpack(fields))
    if logged[i] then
      log_reward(logged[i], bandit, learner, known, own and kept_as == 'l')
    end
    if own and kept_as == 'l' and value_and_time(own) > 0 then
      status = 'revised ' .. status
    end
  end
  outcome[i] = status
end
count_rows(ledger)
return { count_taken(ledger, bytes), outcome }
