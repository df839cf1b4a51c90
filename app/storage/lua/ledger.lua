-- Put before every script that counts what requests leave in the store.
-- A ledger counts the bytes that a partition holds, by kind. It is a hash with the fields
--   <kind>                       how many are held
--   <kind>:<period>              how many of them expire in this period, by the clock of the server
--   <kind>:first, <kind>:last    the periods that have any
--   <kind>-until:<ms>            how many of them are dropped together when that time has passed
-- What expires is counted until its period is over. What is removed before it expires is counted as long.
local PERIOD_MS = 600000

-- Bytes that a long value takes: allocators give blocks of some sizes only, an eighth too large on the average.
local function rounded_up(bytes)
  return bytes + math.floor(bytes / 8)
end

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function period_of(ms)
  return math.floor(ms / PERIOD_MS)
end

local function field_of(kind, period)
  return kind .. ':' .. string.format('%.0f', period)
end

local function until_field(kind, ms)
  return kind .. '-until:' .. ms
end

-- First and last period of each kind, as this call has read and written them.
local periods = {}

local function write_period(ledger, kind, which, period)
  redis.call('HSET', ledger, kind .. ':' .. which, string.format('%.0f', period))
  periods[kind][which] = period
end

-- How many bytes of a kind are held, without those whose period is over. Cost: O(1) and as many steps as periods
-- are over since the last call. The first write is one that a server without memory refuses. Also returns what
-- another field of the ledger holds, if one is named.
local function held(ledger, kind, now, other)
  local bytes, first, last, value =
    unpack(redis.call('HMGET', ledger, kind, kind .. ':first', kind .. ':last', other or kind))
  bytes, first, last = tonumber(bytes or '0'), first and tonumber(first), last and tonumber(last)
  periods[kind] = { first = first, last = last }
  local over = period_of(now) - 1
  if first and first <= over then
    local gone, until_period = 0, math.min(last, over)
    for period = first, until_period do
      gone = gone + tonumber(redis.call('HGET', ledger, field_of(kind, period)) or '0')
    end
    bytes = redis.call('HINCRBY', ledger, kind, gone == 0 and '0' or string.format('%.0f', -gone))
    for period = first, until_period do
      redis.call('HDEL', ledger, field_of(kind, period))
    end
    if last <= over then
      redis.call('HDEL', ledger, kind .. ':first', kind .. ':last')
      periods[kind] = {}
    else
      write_period(ledger, kind, 'first', over + 1)
    end
  end
  return bytes, value
end

-- Some are held that expire in the period; after a call of ``held``.
local function has_some(ledger, kind, period)
  local known = periods[kind]
  if not known.first or period < known.first then
    write_period(ledger, kind, 'first', period)
  end
  if not known.last or period > known.last then
    write_period(ledger, kind, 'last', period)
  end
end

local function has_space(ledger, kind, bytes, most, now)
  local there = held(ledger, kind, now)
  return there + bytes <= tonumber(most)
end

-- Count bytes, or with a negative number of them no longer: of what expires in a period, after a call of ``held``,
-- else of what is removed. Returns how many are held now.
local function count(ledger, kind, bytes, period)
  local now_held = redis.call('HINCRBY', ledger, kind, string.format('%.0f', bytes))
  if period then
    redis.call('HINCRBY', ledger, field_of(kind, period), string.format('%.0f', bytes))
    has_some(ledger, kind, period)
  end
  return now_held
end
