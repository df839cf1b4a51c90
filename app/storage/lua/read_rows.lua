-- KEYS   row-times, stem of the rows keys of the bandit
-- ARGV   least and most of the members, as of ZRANGEBYLEX; most rows; most bytes
-- Result {the field after which there may be more, or '', then of each row its member and its value, in order}
-- Effect none. At least one row is read if there is any, however large it is. The keys that are read have the hash
--        tag of the declared stem, so on Redis Cluster they are in the slot that the call was routed by.
local found, bytes, most, last = { '' }, 0, tonumber(ARGV[3]), ''
for i, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, most + 1)) do
  if i > most or bytes > tonumber(ARGV[4]) then
    found[1] = last
    break
  end
  local field, learner = string.match(member, '^([^/]*)/(.*)$')
  local value = redis.call('HGET', KEYS[2] .. learner, field)
  if value then
    found[#found + 1] = member
    found[#found + 1] = value
    bytes = bytes + #value
  end
  last = field
end
return found
