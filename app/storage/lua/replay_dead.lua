-- WITH   log_tail
-- KEYS   log, watermark, dead letters, then the forgotten key of each entry's learner
-- ARGV   entry ids
-- Result for each id: the id of its new entry, 'forgotten' when its learner was forgotten since, or 'missing'
-- Effect in one step: each dead letter that is there goes to the end of the log, or is dropped when its learner
--        was forgotten after it. Repeated, it changes nothing.
local function order(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end
local function is_before(one, other)
  local ms, n = order(one)
  local other_ms, other_n = order(other)
  return ms < other_ms or (ms == other_ms and n < other_n)
end
local next = next_id(KEYS[1], KEYS[2])
local outcome = {}
for i, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[3], id, id)[1]
  local forgotten = string.match(redis.call('GET', KEYS[3 + i]) or '', '^%d+ (.+)$')
  if not entry then
    outcome[i] = 'missing'
  elseif forgotten and is_before(id, forgotten) then
    outcome[i] = 'forgotten'
  else
    local fields = {}
    for f = 1, #entry[2], 2 do
      local name = entry[2][f]
      if name ~= 'r' and name ~= 'o' then
        fields[#fields + 1], fields[#fields + 2] = name, entry[2][f + 1]
      end
    end
    outcome[i] = next()
    redis.call('XADD', KEYS[1], outcome[i], 'o', id, unpack(fields))
  end
  redis.call('XDEL', KEYS[3], id)
end
return outcome
