-- KEYS   bandits, users of its catalogue
-- ARGV   name, uid
-- Result 1 when it was there, else 0
-- Effect in one step: the record is removed if it begins with the uid, and the bandit no longer uses the catalogue.
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record or string.sub(record, 1, 16) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('SREM', KEYS[2], ARGV[1])
return 1
