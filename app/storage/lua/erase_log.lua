-- KEYS   log, watermark
-- ARGV   bandit uid, learner, entry id of the last to look at, entry id to look after, count
-- Result the entry id that was looked at last, '' at the end, or nil while the last one is not folded
-- Effect in one step: of the next entries, those of the learner are deleted, except for one that is the newest of
--        the log, by which entries are numbered.
local function order(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end
local _, folded = order(redis.call('GET', KEYS[2]) or '0-0')
local _, wanted = order(ARGV[3])
if folded < wanted then
  return false
end
local entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[4], ARGV[3], 'COUNT', ARGV[5])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
for _, entry in ipairs(entries) do
  local fields = entry[2]
  if fields[2] == ARGV[1] and fields[4] == ARGV[2] and entry[1] ~= newest[1] then
    redis.call('XDEL', KEYS[1], entry[1])
  end
end
return #entries == tonumber(ARGV[5]) and entries[#entries][1] or ''
