-- Put after ledger.lua before every script that adds decisions that wait for rewards, or removes some.
local WAITING = 250 -- bytes that a decision takes besides its name, twice, and its record

local function waiting_bytes(decisions, member, record)
  return WAITING + 2 * #member + rounded_up(record and #record or redis.call('HSTRLEN', decisions, member))
end

-- How many bytes are held. The decisions that version 0.1.0 has left are counted once; where there is no decision
-- nothing is held, whatever another version has removed without counting.
local function held_by_waiting(ledger, decisions)
  local bytes = tonumber(redis.call('HGET', ledger, 'waiting') or '-1')
  if redis.call('EXISTS', decisions) == 0 then
    if bytes > 0 then
      redis.call('HSET', ledger, 'waiting', '0')
    end
    return 0
  end
  if bytes < 0 then
    bytes = 0
    for _, member in ipairs(redis.call('HKEYS', decisions)) do
      bytes = bytes + waiting_bytes(decisions, member)
    end
    count(ledger, 'waiting', bytes)
  end
  return bytes
end

-- Adds a decision that is not there yet, for which there is space. Returns the bytes that are held now.
local function wait_for(ledger, decisions, due, member, record, due_ms)
  held_by_waiting(ledger, decisions)
  redis.call('HSET', decisions, member, record)
  redis.call('ZADD', due, due_ms, member)
  return count(ledger, 'waiting', waiting_bytes(decisions, member, record))
end

local function wait_no_longer(ledger, decisions, due, member)
  if redis.call('HEXISTS', decisions, member) == 1 then
    held_by_waiting(ledger, decisions)
    count(ledger, 'waiting', -waiting_bytes(decisions, member))
    redis.call('HDEL', decisions, member)
  end
  redis.call('ZREM', due, member)
end
