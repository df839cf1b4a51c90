-- Put before every script that appends to the log of a partition.
-- next_id(log, watermark) -> function that gives the entry ids which follow the newest entry, the id of the
--   newest, the ms of now, the number of the newest: the time in ids never runs backwards, and the second part
--   numbers the entries without a gap.
-- When trimming has emptied the log, the watermark is its newest entry: nothing above it is ever trimmed.
local function next_id(log, watermark)
  local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local tail = newest and newest[1] or redis.call('GET', watermark) or '0-0'
  local ms, n = string.match(tail, '^(%d+)-(%d+)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local stem = string.format('%.0f-', math.max(tonumber(ms), now))
  n = tonumber(n)
  local number = n
  return function()
    n = n + 1
    return stem .. n -- exact up to 1e14
  end, tail, now, number
end
