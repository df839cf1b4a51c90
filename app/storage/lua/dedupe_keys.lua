-- Put after dedupe.lua and ledger.lua before every script that takes dedupe keys.
local FIELD, KEY = 80, 165 -- bytes that a field of a hash, and a key that expires, take besides their names

-- The name of a key without its prefix and hash tag: the field that it is.
local function field(key)
  return string.match(key, '^[^}]*}:(.*)$')
end

-- What this call has taken, and what was held before, in bytes, by the field of the ledger: one for each hash of
-- dedupe keys, and for each period in which others expire.
local taken, before = {}, {}

local function held_before(ledger, part)
  before[part] = before[part] or redis.call('HGET', ledger, part) or '0'
  return before[part]
end

local parts = {}

-- The field of the ledger that counts the dedupe keys of a decision.
local function part_of(seen_until)
  parts[seen_until] = parts[seen_until] or until_field('dedupe', string.match(seen_until, '%d+$'))
  return parts[seen_until]
end

local function is_taken(seen_until, key, known)
  return known == '' and redis.call('EXISTS', key) == 1 or redis.call('HEXISTS', seen_until, field(key)) == 1
end

-- Take a dedupe key of a decision; false when it is taken. A hash of which nothing was counted is put on the list
-- of those to be dropped.
local function take(ledger, ends, seen_until, key, value, known)
  if known == '' and redis.call('EXISTS', key) == 1 then
    return false
  end
  local name, part = field(key), part_of(seen_until)
  if redis.call('HSETNX', seen_until, name, value) == 0 then
    return false
  end
  if not taken[part] and held_before(ledger, part) == '0' then
    local last_ms = string.match(seen_until, '%d+$')
    redis.call('ZADD', ends, last_ms, last_ms)
  end
  taken[part] = (taken[part] or 0) + FIELD + rounded_up(#name)
  return true
end

-- Take the dedupe key of what is no decision, for ttl_ms; false when it is taken.
local function take_for(key, ttl_ms, now)
  if not redis.call('SET', key, '', 'NX', 'PX', ttl_ms) then
    return false
  end
  local part = field_of('dedupe', period_of(now + tonumber(ttl_ms)))
  taken[part] = (taken[part] or 0) + KEY + rounded_up(#key)
  return true
end

-- Count what this call has taken, after a call of ``held``; ``bytes`` are held without it. Returns how many are
-- held now. The total and its part are one write: all that a reward writes is in the append-only file.
local function count_taken(ledger, bytes)
  for part, more in pairs(taken) do
    bytes = bytes + more
    more = more + held_before(ledger, part)
    redis.call('HSET', ledger, 'dedupe', string.format('%.0f', bytes), part, string.format('%.0f', more))
    local period = string.match(part, ':(%d+)$')
    if part == field_of('dedupe', period) then
      has_some(ledger, 'dedupe', tonumber(period))
    end
  end
  return bytes
end

-- The value of a dedupe key that is taken.
local function value_of(seen_until, key)
  return redis.call('HGET', seen_until, field(key)) or redis.call('GET', key)
end
