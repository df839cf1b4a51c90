-- WITH   log_tail
-- KEYS   row-times, stem of the rows keys of the bandit, log, watermark
-- ARGV   least and most of the members, as of ZRANGEBYLEX; most rows; most bytes; '1' for the newest first
-- Result {the field after which there may be more, or '', id of the newest entry of the log, then of each row its member and its value, in order}
-- Effect none. At least one row is read if there is any, however large it is. The keys that are read have the hash
--        tag of the declared stem, so on Redis Cluster they are in the slot that the call was routed by.
local _, newest = next_id(KEYS[3], KEYS[4])
local found, bytes, most, last = { '', newest }, 0, tonumber(ARGV[3]), ''
local command, first, final = 'ZRANGEBYLEX', ARGV[1], ARGV[2]
if ARGV[5] == '1' then
  command, first, final = 'ZREVRANGEBYLEX', ARGV[2], ARGV[1]
end
for i, member in ipairs(redis.call(command, KEYS[1], first, final, 'LIMIT', 0, most + 1)) do
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
