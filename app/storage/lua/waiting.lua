-- Put after ledger.lua before every script that adds decisions that wait for rewards, or removes some.
local WAITING = 250 -- bytes that a decision takes besides its name, twice, and its record

local function waiting_bytes(decisions, member, record)
  return WAITING + 2 * #member + rounded_up(record and #record or redis.call('HSTRLEN', decisions, member))
end

local function held_by_waiting(ledger)
  return tonumber(redis.call('HGET', ledger, 'waiting') or '0')
end

-- Adds a decision that is not there yet, for which there is space. Returns the bytes that are held now.
local function wait_for(ledger, decisions, due, member, record, due_ms)
  redis.call('HSET', decisions, member, record)
  redis.call('ZADD', due, due_ms, member)
  return count(ledger, 'waiting', waiting_bytes(decisions, member, record))
end

local function wait_no_longer(ledger, decisions, due, member)
  if redis.call('HEXISTS', decisions, member) == 1 then
    count(ledger, 'waiting', -waiting_bytes(decisions, member))
    redis.call('HDEL', decisions, member)
  end
  redis.call('ZREM', due, member)
end
