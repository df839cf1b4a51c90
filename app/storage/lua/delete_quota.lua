-- WITH   quota_changed
-- KEYS   quotas of the bandit, the quota, its shares, changes
-- ARGV   id, most changes
-- Result 1; 0 when there was none
-- Effect in one step: nothing is left of it but that it has changed.
local found = redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2], KEYS[3])
if found == 1 then
  note_change(KEYS[4], ARGV[1], tonumber(ARGV[2]))
end
return found
