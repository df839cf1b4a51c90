-- KEYS   erase
-- ARGV   member, entry id
-- Result 1 when the member is done with
-- Effect in one step: the member leaves the list, unless it was forgotten once more meanwhile.
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
