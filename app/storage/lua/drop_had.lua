-- WITH   ledger, had
-- KEYS   ledger, what a key has had
-- Result 1
-- Effect in one step: it has had nothing, and that is no longer counted.
drop_had(KEYS[1], KEYS[2])
return 1
