-- KEYS   log, watermark, refused, seen-ends; then for each reward: seen, seen-first (seen again without a
--        decision key), forgotten, seen-until (seen again for what does not expire)
-- ARGV   for each reward: bandit uid, learner, '1' when it has a decision key else '', issued_ms, known entry
--        or '', expires_ms or '', ttl_ms or '', payload
-- Result for each reward: its entry id, or 'duplicate ' and the id of the newest entry, or 'forgotten', or
--        'expired'
-- Effect in one step: every reward whose learner was not forgotten after its decision, whose decision is not
--        refused as expired and whose dedupe key is new is appended. Its dedupe keys are then taken: those of a
--        decision until all that expires as early is refused, others for ttl_ms. One that comes after its default
--        was counted ('d') is marked as its replacement ('r'). Repeated, it changes nothing.
local log, refused, ends = KEYS[1], KEYS[3], KEYS[4]
local next, newest = next_id(log, KEYS[2])
local is_refused = refusals(refused)

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

local outcome = {}
for i = 1, #ARGV / 8 do
  local seen, first, forgotten, seen_until = unpack(KEYS, 1 + 4 * i, 4 + 4 * i)
  local bandit, learner, has_decision, issued, known, expires, ttl, payload = unpack(ARGV, 8 * i - 7, 8 * i)
  local kind = '1'
  if is_forgotten(forgotten, issued, known) then
    outcome[i] = 'forgotten'
  elseif expires == '' then
    if not redis.call('SET', seen, '', 'NX', 'PX', ttl) then
      outcome[i] = 'duplicate ' .. newest
    end
  elseif is_refused(expires, known) then
    outcome[i] = value_of(seen_until, seen) and 'duplicate ' .. newest or 'expired'
  elseif not take(ends, seen_until, seen, '', known) then
    outcome[i] = 'duplicate ' .. newest
  else
    expect(known)
    if has_decision ~= '' and not take(ends, seen_until, first, '', known) then
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
return outcome
