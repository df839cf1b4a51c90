-- KEYS   features
-- ARGV   ids of arms
-- Result the revision of each, 0 of one that is not there
-- Effect none
local found = redis.call('HMGET', KEYS[1], unpack(ARGV))
for i = 1, #ARGV do
  found[i] = found[i] and struct.unpack('<I8', found[i]) or 0
end
return found
