-- KEYS   documents
-- ARGV   most bytes, arms
-- Result the documents of the first of these arms: of at least one, and of as many as take so many bytes together
-- Effect none
local bytes, last = 0, 1
for place = 2, #ARGV do
  bytes = bytes + redis.call('HSTRLEN', KEYS[1], ARGV[place])
  if place > 2 and bytes > tonumber(ARGV[1]) then
    break
  end
  last = place
end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 2, last))
