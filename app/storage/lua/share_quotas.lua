-- WITH   quota_window
-- KEYS   for each quota: itself, its shares (process -> 'number granted spent')
-- ARGV   process, number of the call; for each quota: uid, start of the window that `spent` is of, spent, wanted,
--        needed, or -1 with the last call of the process
-- Result the time in ms; for each quota {known, holds, start, until, granted to the process, granted, spent, rewarded,
--        most, fair}
-- Effect in one step: the process has spent this, and holds `wanted` more or as many as it may: all processes together
--        never have more than `most` in a window. A call that arrives after a later one of its process changes nothing.
local process, number, now = ARGV[1], tonumber(ARGV[2]), server_ms()
local answer = { now }
for place = 1, #KEYS / 2 do
  local key, shares, at = KEYS[2 * place - 1], KEYS[2 * place], 3 + 5 * (place - 1)
  local quota = quota_now(key, shares, now)
  if not quota or quota.uid ~= ARGV[at] then
    table.insert(answer, { 0, 0, -1, 0, 0, 0, 0, 0, 0, 0 })
  else
    local mine, fair = 0, 0
    if quota.holds then
      local before = redis.call('HGET', shares, process)
      local last, share, spent = 0, 0, 0
      if before then
        last, share, spent = string.match(before, '^(%d+) (%d+) (%d+)$')
        last, share, spent = tonumber(last), tonumber(share), tonumber(spent)
      end
      -- what was spent in a window that is over does not count in this one
      local now_spent = tonumber(ARGV[at + 1]) == quota.start and tonumber(ARGV[at + 2]) or 0
      local wanted, needed = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
      -- Of what is left and held here, the processes that have a share may hold a half together, each as much. What
      -- one has and has not given back stays its own: it may be spending it.
      local free = math.max(quota.most - quota.granted + share - now_spent, 0)
      fair = math.ceil(free / (2 * (redis.call('HLEN', shares) + (before and 0 or 1))))
      if number > last then
        -- a process with a choice waiting may hold more than its fair part, but never more than is free
        local held = math.min(wanted, math.max(needed, fair), free)
        local now_share = now_spent + math.max(held, math.min(share - now_spent, wanted))
        quota.granted, quota.spent = quota.granted + now_share - share, quota.spent + now_spent - spent
        if before or now_share > 0 then
          if needed < 0 then -- it has stopped: others may hold its part
            redis.call('HDEL', shares, process)
          else
            redis.call('HSET', shares, process, text(number) .. ' ' .. text(now_share) .. ' ' .. text(now_spent))
          end
          redis.call('HSET', key, 'granted', text(quota.granted), 'spent', text(quota.spent))
        end
        share = now_share
      end
      mine = share
    end
    table.insert(answer, {
      1, quota.holds and 1 or 0, quota.start, quota.finish, mine, quota.granted, quota.spent, quota.rewarded, quota.most,
      fair,
    })
  end
end
return answer
