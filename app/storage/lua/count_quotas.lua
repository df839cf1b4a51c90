-- WITH   quota
-- KEYS   changes, closed; the quotas
-- ARGV   last change that is known; for each quota: id, uid; for each event: show, activate, refund, reward or read, how
--        many quotas, and for each of these: its number, count (below 0 of a refund), start of the window of a refund or ''
-- Result {time in ms, changes, for each event whether it was counted; for each quota {start, finish, shown, rewarded}}
-- Effect in one step: one event after the other, all of one is counted in the windows of now, or nothing. A quota of
--        another uid, or that does not hold (start -1), neither counts nor refuses. A list may go beyond the line, and an
--        activation is not held back by it.
local quotas, at = {}, 2
for number = 3, #KEYS do
  local quota = read_quota(ARGV[at], KEYS[number])
  if not quota or quota.uid ~= ARGV[at + 1] then
    quota = { start = -1, finish = 0, shown = 0, rewarded = 0 }
  end
  quotas[number - 2], at = quota, at + 2
end
local all_counted = {}
while at < #ARGV do
  local what, last, counts, counted = ARGV[at], at + 2 + 3 * ARGV[at + 1], {}, 1
  for place = at + 2, last - 1, 3 do
    local quota, more, start = quotas[tonumber(ARGV[place])], tonumber(ARGV[place + 1]), ARGV[place + 2]
    if quota.start >= 0 and what ~= 'read' and (start == '' or start == text(quota.start)) then
      local is_full = quota.counts == 'shown' and quota.shown + more > quota.most
      if (what == 'show' and (is_full or closed_until(quota) > 0)) or (what == 'activate' and is_full) then
        counted = 0
      end
      counts[quota], quota.is_asked, quota.is_refunded = more, true, quota.is_refunded or what == 'refund'
    end
  end
  local field = what == 'reward' and 'rewarded' or 'shown'
  for quota, more in pairs(counted == 1 and counts or {}) do
    quota[field], quota.is_changed = quota[field] + more, true
  end
  table.insert(all_counted, counted)
  at = last
end
local answer = { now, false, all_counted }
for _, quota in ipairs(quotas) do
  if quota.is_changed then
    local counts = { 'window', text(quota.start), 'shown', text(quota.shown), 'rewarded', text(quota.rewarded) }
    redis.call('HSET', quota.key, unpack(counts))
  end
  local until_ms = quota.is_asked and closed_until(quota) or 0
  if until_ms > 0 or quota.is_refunded then
    note(quota.id, until_ms)
  end
  table.insert(answer, { quota.start, quota.finish, quota.shown, quota.rewarded })
end
answer[2] = changes_since(ARGV[1])
return answer
