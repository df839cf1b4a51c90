-- Put before every script that counts what was decided once, or refuses what was decided before.
-- The dedupe keys of decisions are fields of one hash for each period in which decisions expire. A hash is dropped
-- as a whole (drop_expired), and in the same step every decision is refused that could have had a key in it: so
-- nothing is counted twice, whatever the clocks do. The newest entry of the log that was known to a decision
-- ("known entry") orders it among drops and deletions, as no clock can.

-- refusals(refused) -> function(expires_ms, known entry) that tells whether what is kept of a decision may be
--   dropped already: its dedupe keys, or that its learner was forgotten.
local function refusals(refused)
  local bounds = redis.call('HMGET', refused, 'expires', 'known', 'forgotten')
  local expires, known, forgotten = tonumber(bounds[1] or 0), tonumber(bounds[2] or 0), tonumber(bounds[3] or 0)
  return function(expires_ms, known_entry)
    known_entry = tonumber(known_entry)
    return known_entry < forgotten or (tonumber(expires_ms) <= expires and known_entry <= known)
  end
end

-- Whether the learner was forgotten after a decision: by an entry that was not known when it was decided.
local function is_forgotten(forgotten, known_entry)
  local mark = redis.call('GET', forgotten)
  return mark and tonumber(known_entry) < tonumber(string.match(mark, '%d+$'))
end

local function is_taken(home, name)
  return redis.call('HEXISTS', home, name) == 1
end

-- The hashes of dedupe keys that this call has found on the list of those to be dropped, or put there.
local listed = {}

-- Take a dedupe key of a decision; false when it is taken. A hash that is new is put on the list (`ends`).
local function take(ends, home, last_ms, name, value)
  if redis.call('HSETNX', home, name, value) == 0 then
    return false
  end
  if not listed[home] then
    listed[home] = true
    if redis.call('HLEN', home) == 1 then
      redis.call('ZADD', ends, last_ms, last_ms)
    end
  end
  return true
end
