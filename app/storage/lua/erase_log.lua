-- KEYS   log, watermark
-- ARGV   bandit uid, learner or '', entry id of the last to read, entry id to read after, count
-- Result the entry id that was read last, '' at the end, or nil while the last one is not folded
-- Effect in one step: of the next entries, those of the learner are deleted, except for one that is the newest of
--        the log, by which entries are numbered. Without a learner: those of the bandit, folded or not.
local function order(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end
local function is_theirs(fields)
  local named = {}
  for f = 1, #fields, 2 do
    named[fields[f]] = fields[f + 1]
  end
  return named.b == ARGV[1] and (ARGV[2] == '' or named.l == ARGV[2])
end
if ARGV[2] ~= '' then
  local _, folded = order(redis.call('GET', KEYS[2]) or '0-0')
  local _, wanted = order(ARGV[3])
  -- not before it is folded: until then workers still read the entries
  if folded < wanted then
    return false
  end
end
local entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[4], ARGV[3], 'COUNT', ARGV[5])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
for _, entry in ipairs(entries) do
  if entry[1] ~= newest[1] and is_theirs(entry[2]) then
    redis.call('XDEL', KEYS[1], entry[1])
  end
end
return #entries == tonumber(ARGV[5]) and entries[#entries][1] or ''
