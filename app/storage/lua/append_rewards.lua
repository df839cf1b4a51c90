-- KEYS   log, watermark, refused, seen-ends, ledger; then for each reward: seen, seen-first (seen again without a
--        decision key), forgotten, seen-until (seen again for what does not expire)
-- ARGV   most bytes of dedupe keys; then for each reward: bandit uid, learner, '1' when it has a decision key
--        else '', issued_ms, known entry or '', expires_ms or '', ttl_ms or '', payload
-- Result {bytes of dedupe keys that are held now, {for each reward its entry id, or 'duplicate ' and the id of the
--        newest entry, or 'forgotten', or 'expired'}}, or {-1, {}} when there is no room for all that are new
-- Effect in one step: every reward whose learner was not forgotten after its decision, whose decision is not
--        refused as expired and whose dedupe key is new is appended. Its dedupe keys are then taken, and counted:
--        those of a decision until all that expires as early is refused, others for ttl_ms. One that comes after
--        its default was counted ('d') is marked as its replacement ('r'). Repeated, it changes nothing. Without
--        room for all new dedupe keys nothing is done.
local log, refused, ends, ledger = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local next, newest, now = next_id(log, KEYS[2])
local is_refused = refusals(refused)
local rewards = (#ARGV - 1) / 8

local function keys_of(i)
  return unpack(KEYS, 2 + 4 * i, 5 + 4 * i)
end

local function arguments_of(i)
  return unpack(ARGV, 8 * i - 6, 8 * i + 1)
end

-- More than the dedupe keys take if all are new.
local function most_bytes()
  local names = 0
  for k = 6, #KEYS do
    names = names + #KEYS[k]
  end
  return 2 * KEY * rewards + rounded_up(names)
end

-- What the dedupe keys take that are new.
local function new_bytes()
  local new = {} -- bytes of each
  for i = 1, rewards do
    local seen, first, forgotten, seen_until = keys_of(i)
    local _, _, has_decision, issued, known, expires = arguments_of(i)
    local counts = not is_forgotten(forgotten, issued, known)
    if counts and expires == '' and redis.call('EXISTS', seen) == 0 then
      new[seen] = KEY + rounded_up(#seen)
    elseif counts and expires ~= '' and not is_refused(expires, known) and not is_taken(seen_until, seen, known) then
      new[seen_until .. seen] = FIELD + rounded_up(#field(seen))
      if has_decision ~= '' and not is_taken(seen_until, first, known) then
        new[seen_until .. first] = FIELD + rounded_up(#field(first))
      end
    end
  end
  local bytes = 0
  for _, each in pairs(new) do
    bytes = bytes + each
  end
  return bytes
end

-- Of a store that was put back from a copy, a decision may know entries that are not in it. What it knows is
-- beyond all that is counted from now on, so drop_expired would not refuse it: it does from here on.
local function expect(known)
  if known ~= '' and tonumber(known) > tonumber(string.match(newest, '%d+$')) then
    local before = redis.call('HGET', refused, 'known')
    if not before or tonumber(before) < tonumber(known) then
      redis.call('HSET', refused, 'known', known)
    end
  end
end

local part = ARGV[7] == '' and field_of('dedupe', period_of(now + tonumber(ARGV[8]))) or part_of(KEYS[9])
local bytes, part_held = held(ledger, 'dedupe', now, part) -- what nearly always all of them add to
before[part] = part_held or '0'
local room = tonumber(ARGV[1])
if bytes + most_bytes() > room then
  local more = new_bytes()
  if more > 0 and bytes + more > room then
    return { -1, {} }
  end
end

local outcome = {}
for i = 1, rewards do
  local seen, first, forgotten, seen_until = keys_of(i)
  local bandit, learner, has_decision, issued, known, expires, ttl, payload = arguments_of(i)
  local kind = '1'
  if is_forgotten(forgotten, issued, known) then
    outcome[i] = 'forgotten'
  elseif expires == '' then
    if not take_for(seen, ttl, now) then
      outcome[i] = 'duplicate ' .. newest
    end
  elseif is_refused(expires, known) then
    outcome[i] = value_of(seen_until, seen) and 'duplicate ' .. newest or 'expired'
  elseif not take(ledger, ends, seen_until, seen, '', known) then
    outcome[i] = 'duplicate ' .. newest
  else
    expect(known)
    if has_decision ~= '' and not take(ledger, ends, seen_until, first, '', known) then
      kind = value_of(seen_until, first) == 'd' and 'r' or '0'
      if kind == 'r' then
        redis.call('HSET', seen_until, field(first), '')
      end
    end
  end
  if not outcome[i] then
    newest = next()
    outcome[i] = newest
    redis.call('XADD', log, newest, 'b', bandit, 'l', learner, 'f', kind, 'p', payload)
  end
end
return { count_taken(ledger, bytes), outcome }
