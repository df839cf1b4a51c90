-- WITH   changes
-- KEYS   log, watermark, changes of each partition
-- ARGV   changes kept, most members of all lists, and for each partition the watermark that is known or ''
-- Result for each partition {watermark, newest entry}, with a third item when the watermark is not the known
--        one: the learners changed since, each after its bandit's uid, and again after a '-' when it was
--        removed; or nil when it is not known which. The partitions after those whose lists have as many
--        members as may be are left out
-- Effect none. A watermark below the known one means that the store has lost writes.
local found, members = {}, 0
for p = 1, #ARGV - 2 do
  if members >= tonumber(ARGV[2]) then
    break
  end
  local log, watermark_key, changes, since = KEYS[3 * p - 2], KEYS[3 * p - 1], KEYS[3 * p], ARGV[p + 2]
  local watermark = redis.call('GET', watermark_key) or '0-0'
  local entry = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local newest = entry and entry[1] or watermark
  if watermark == since then
    found[p] = { watermark, newest }
  else
    local known = tonumber(string.match(since, '%d+$'))
    local listed = false
    if known and known < tonumber(string.match(watermark, '%d+$')) then
      listed = changed_since(changes, known, tonumber(ARGV[1]))
      members = members + (listed and #listed or 0)
    end
    found[p] = { watermark, newest, listed }
  end
end
return found
