-- WITH   rows
-- KEYS   rows, row-times
-- ARGV   learner, number of an entry of the log, cursor of HSCAN, count
-- Result the next cursor, '0' at the end
-- Effect in one step: of the next rows of the learner, those of decisions that did not know the entry are dropped.
local found = redis.call('HSCAN', KEYS[1], ARGV[3], 'COUNT', ARGV[4])
for i = 1, #found[2], 2 do
  if tonumber(string.match(found[2][i + 1], '^%d+')) < tonumber(ARGV[2]) then
    drop_row(KEYS[1], KEYS[2], found[2][i], ARGV[1])
  end
end
return found[1]
