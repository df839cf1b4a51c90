-- WITH   tails
-- KEYS   log, watermark, stem of the tails keys of all bandits
-- ARGV   before_ms, count
-- Result {1 when there may be more to drop else 0, then the learners, each after its bandit's uid, whose tails
--        need some of the entries that were looked at}
-- Effect in one step: of the first count entries, those at or below the watermark and older than before_ms are
--        dropped, up to the first that is in a tail. The names of the tails keys follow from the entries.
local ms, n = string.match(redis.call('GET', KEYS[2]) or '0-0', '^(%d+)-(%d+)$')
-- 2^53 is above every number of an entry: all entries of that millisecond are meant
local last = string.format('%.0f-%.0f', math.max(1, tonumber(ARGV[1])) - 1, 2 ^ 53)
if tonumber(ms) < tonumber(ARGV[1]) then
  last = ms .. '-' .. n
end
local entries = redis.call('XRANGE', KEYS[1], '-', last, 'COUNT', ARGV[2])
local found, known, least = { 0 }, {}, false
for _, entry in ipairs(entries) do
  local named = {}
  for f = 1, #entry[2], 2 do
    named[entry[2][f]] = entry[2][f + 1]
  end
  local tails, member = KEYS[3] .. (named.b or ''), tail_member(tail_stem(named.l or ''), entry[1])
  if redis.call('ZSCORE', tails, member) then
    least = least or entry[1]
    local learner = named.b .. named.l
    if not known[learner] then
      known[learner] = true
      found[#found + 1] = learner
    end
  end
end
if #entries > 0 then
  local newest = entries[#entries][1]
  ms, n = string.match(newest, '^(%d+)-(%d+)$')
  redis.call('XTRIM', KEYS[1], 'MINID', '=', least or string.format('%s-%.0f', ms, tonumber(n) + 1))
end
if #entries == tonumber(ARGV[2]) then
  found[1] = 1
end
return found
