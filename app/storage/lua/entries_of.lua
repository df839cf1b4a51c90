-- KEYS   log, dead letters
-- ARGV   entry id to read after, entry id of the last to read, count, then for each learner: bandit uid, learner
-- Result {entry id that was read last, '' at the end; entry id and fields of the next entries of these learners}
-- Effect none. Those that are dead letters are left out.
local wanted = {}
for a = 4, #ARGV, 2 do
  wanted[ARGV[a]] = wanted[ARGV[a]] or {}
  wanted[ARGV[a]][ARGV[a + 1]] = true
end
local entries, theirs = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3]), {}
local has_dead = redis.call('EXISTS', KEYS[2]) == 1
for _, entry in ipairs(entries) do
  local fields, bandit, learner = entry[2], '', nil
  for f = 1, #fields, 2 do
    if fields[f] == 'b' then
      bandit = fields[f + 1]
    elseif fields[f] == 'l' then
      learner = fields[f + 1]
    end
  end
  if learner and wanted[bandit] and wanted[bandit][learner]
    and not (has_dead and redis.call('XRANGE', KEYS[2], entry[1], entry[1])[1]) then
    theirs[#theirs + 1] = entry
  end
end
return { #entries == tonumber(ARGV[3]) and entries[#entries][1] or '', theirs }
