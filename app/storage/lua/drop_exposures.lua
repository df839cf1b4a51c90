-- WITH   ledger, exposures
-- KEYS   ledger, what a key was shown
-- Result 1
-- Effect in one step: it was shown nothing, and that is no longer counted.
drop_exposures(KEYS[1], KEYS[2])
return 1
