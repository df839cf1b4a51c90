-- Put after dedupe.lua and ledger.lua before every script that takes dedupe keys.
-- Those of a decision are fields of a hash: `home`, of decisions that expire by `last_ms`. Others are keys that
-- expire. How many bytes they take is counted in the ledger, for each hash and for each period in which keys expire.
-- Bytes that a field of a hash, and a key that expires, take besides their names; and a number as the value of a
-- field, or more where that is longer: the signals that have come.
local FIELD, KEY, NUMBER = 80, 165, 32

local function field_bytes(name, value)
  return FIELD + rounded_up(#name) + (#value > 1 and math.max(NUMBER, rounded_up(#value)) or 0)
end

-- What this call has taken, and what was held before, in bytes, by the field of the ledger.
local taken, before = {}, {}

local function part_of(last_ms)
  return 'dedupe-until:' .. last_ms
end

local function is_taken(home, name)
  return redis.call('HEXISTS', home, name) == 1
end

-- Take a dedupe key of a decision; false when it is taken. A hash of which nothing was counted is put on the list
-- of those to be dropped (`ends`).
local function take(ledger, ends, home, last_ms, name, value)
  if redis.call('HSETNX', home, name, value) == 0 then
    return false
  end
  local part = part_of(last_ms)
  if not taken[part] then
    before[part] = before[part] or redis.call('HGET', ledger, part) or '0'
    if before[part] == '0' then
      redis.call('ZADD', ends, last_ms, last_ms)
    end
  end
  taken[part] = (taken[part] or 0) + field_bytes(name, value)
  return true
end

-- Count what this call has taken, after a call of ``held``; ``bytes`` are held without it. Returns how many are
-- held now. The total and its part are one write: all that a reward writes is in the append-only file.
local function count_taken(ledger, bytes)
  for part, more in pairs(taken) do
    bytes = bytes + more
    more = more + (before[part] or redis.call('HGET', ledger, part) or '0')
    redis.call('HSET', ledger, 'dedupe', string.format('%.0f', bytes), part, string.format('%.0f', more))
    local period = string.match(part, '^dedupe:(%d+)$')
    if period then
      has_some(ledger, 'dedupe', tonumber(period))
    end
  end
  return bytes
end
