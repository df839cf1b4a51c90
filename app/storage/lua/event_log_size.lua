-- Put before every script that makes a log larger.
-- The size of a log is a hash: 'events' -> bytes of its events, 'reserved' -> bytes that all logs together
-- leave to it (reserve_event_log.lua).
local LOG, EVENT = 1024, 24 -- bytes that a log takes besides what it holds, and an event

local function rounded_up(bytes)
  return bytes + math.floor(bytes / 8)
end

local function event_bytes(size)
  return tonumber(redis.call('HGET', size, 'events') or '0')
end

-- How many bytes the log would take, or false when so many are reserved for it: by an earlier call or now.
local function too_large(size, record, events, snapshot, reserved)
  local bytes = LOG + rounded_up(redis.call('STRLEN', record)) + events + rounded_up(snapshot)
  if bytes <= tonumber(redis.call('HGET', size, 'reserved') or '0') then
    return false
  end
  if bytes > tonumber(reserved) then
    return bytes
  end
  redis.call('HSET', size, 'reserved', reserved)
  return false
end
