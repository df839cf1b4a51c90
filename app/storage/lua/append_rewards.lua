-- KEYS   log, watermark, then for each reward: seen, seen-first (seen again without a decision key), forgotten
-- ARGV   for each reward: bandit uid, learner, '1' when it has a decision key else '', issued_ms, ttl_ms, payload
-- Result for each reward: its entry id, or 'duplicate ' and the id of the newest entry, or 'forgotten'
-- Effect in one step: every reward whose learner was not forgotten at or after its decision, and whose seen
--        key is new, is appended; its two keys are then taken for ttl_ms. One that comes after its default was
--        counted ('d') is marked as its replacement ('r'). Repeated, it changes nothing.
local log = KEYS[1]
local next, newest = next_id(log, KEYS[2])
local outcome = {}
for i = 1, #ARGV / 6 do
  local seen, first, forgotten = KEYS[3 * i], KEYS[3 * i + 1], KEYS[3 * i + 2]
  local a = 6 * (i - 1)
  local bandit, learner, has_decision, issued, ttl, payload =
    ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], ARGV[a + 6]
  local refused_until = string.match(redis.call('GET', forgotten) or '', '^%d+')
  if refused_until and tonumber(issued) <= tonumber(refused_until) then
    outcome[i] = 'forgotten'
  elseif not redis.call('SET', seen, '', 'NX', 'PX', ttl) then
    outcome[i] = 'duplicate ' .. newest
  else
    local kind = '1'
    if has_decision ~= '' and not redis.call('SET', first, '', 'NX', 'PX', ttl) then
      kind = redis.call('GET', first) == 'd' and 'r' or '0'
      if kind == 'r' then
        redis.call('SET', first, '', 'PX', ttl)
      end
    end
    newest = next()
    outcome[i] = newest
    redis.call('XADD', log, newest, 'b', bandit, 'l', learner, 'f', kind, 'p', payload)
  end
end
return outcome
