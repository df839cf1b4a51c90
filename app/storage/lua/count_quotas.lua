-- WITH   quota
-- KEYS   changes, closed; the quotas
-- ARGV   last change that is known; show, activate, refund, reward or read; for each quota: id, uid, count (below 0 of a
--        refund), start of the window of a refund, else ''
-- Result {time in ms, whether it was counted, changes; for each quota {start, finish, shown, rewarded}, start -1: none}
-- Effect in one step: all of it is counted in the windows of now, or nothing. A quota of another uid, or that does not
--        hold, neither counts nor refuses. A list may go beyond the line, and an activation is not held back by it.
local what, counted, quotas = ARGV[2], 1, {}
for place = 1, #KEYS - 2 do
  local at = 4 * place - 1
  local quota = read_quota(ARGV[at], KEYS[place + 2])
  if not quota or quota.uid ~= ARGV[at + 1] or (ARGV[at + 3] ~= '' and ARGV[at + 3] ~= text(quota.start)) then
    quota = { start = -1, finish = 0, shown = 0, rewarded = 0 }
  elseif quota.start >= 0 then
    quota.more = tonumber(ARGV[at + 2])
    local is_full = quota.counts == 'shown' and quota.shown + quota.more > quota.most
    if (what == 'show' and (is_full or closed_until(quota) > 0)) or (what == 'activate' and is_full) then
      counted = 0
    end
  end
  quotas[place] = quota
end
local answer = { now, counted, false }
for _, quota in ipairs(quotas) do
  if quota.more and what ~= 'read' then
    if counted == 1 then
      local field = what == 'reward' and 'rewarded' or 'shown'
      quota[field] = quota[field] + quota.more
      local counts = { 'window', text(quota.start), 'shown', text(quota.shown), 'rewarded', text(quota.rewarded) }
      redis.call('HSET', quota.key, unpack(counts))
    end
    local until_ms = closed_until(quota)
    if until_ms > 0 or what == 'refund' then
      note(quota.id, until_ms)
    end
  end
  table.insert(answer, { quota.start, quota.finish, quota.shown, quota.rewarded })
end
answer[3] = changes_since(ARGV[1])
return answer
