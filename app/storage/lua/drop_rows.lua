-- WITH   ledger, rows
-- KEYS   rows, row-times, ledger
-- ARGV   learner, then fields of rows
-- Result 1
-- Effect in one step: these rows of the learner are dropped, with what is counted of them.
redis.call('HDEL', KEYS[3], '')
for i = 2, #ARGV do
  drop_row(KEYS[1], KEYS[2], ARGV[i], ARGV[1])
end
count_rows(KEYS[3])
return 1
