-- WITH   rows
-- KEYS   rows, row-times
-- ARGV   learner, then fields of rows
-- Result 1
-- Effect in one step: these rows of the learner are dropped.
for i = 2, #ARGV do
  drop_row(KEYS[1], KEYS[2], ARGV[i], ARGV[1])
end
return 1
