-- WITH   ledger, waiting
-- KEYS   ledger
-- ARGV   kinds of what expires
-- Result the bytes that are held of waiting decisions, then of each kind
-- Effect in one step: what has expired is no longer counted. A server without memory refuses the first write of a
--        script if it could take memory, and no later one: the first one here takes none.
redis.call('HDEL', KEYS[1], '')
local now = server_ms()
local found = { held_by_waiting(KEYS[1]) }
for i, kind in ipairs(ARGV) do
  found[i + 1] = held(KEYS[1], kind, now)
end
return found
