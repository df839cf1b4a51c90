-- Put after ledger.lua before every script that changes what a key was shown.
-- That is a sorted set of '<name>:<value>', by when in ms. One more member, COUNTED, was not shown: its score says how
-- many bytes the ledger counts for the key, and in which period they expire. It is above every time.
local COUNTED, SHIFT, LAST_MS = 'counted', 2 ^ 28, '1e14'
-- Bytes that a key and a member take besides their names: of a set that is kept as one block, and of any other.
local BLOCK, BLOCK_MEMBER, TREE, TREE_MEMBER = 240, 24, 1000, 120
local BLOCK_MEMBERS, BLOCK_CHARS = 128, 64 -- no larger set is kept as one block

local function is_tree(exposures)
  return redis.call('EXISTS', exposures) == 1 and redis.call('OBJECT', 'ENCODING', exposures) == 'skiplist'
end

-- What so many members take whose names are so long together, and the longest so long. Measured on Redis 6.2 and 7.0
-- and Valkey 9.1, with MEMORY USAGE.
local function bytes_of_exposures(exposures, members, chars, longest)
  members, chars = members + 1, chars + #COUNTED
  if members > BLOCK_MEMBERS or longest > BLOCK_CHARS or is_tree(exposures) then
    return TREE + #exposures + members * TREE_MEMBER + rounded_up(chars)
  end
  return BLOCK + #exposures + members * BLOCK_MEMBER + chars
end

-- Bytes that the ledger counts for a key, and their period; 0 of a key that it does not count, or no longer does.
local function counted_for(ledger, exposures)
  -- one number holds both, since a member has nothing but a score
  local mark = tonumber(redis.call('ZSCORE', exposures, COUNTED) or '0')
  local period = math.floor(mark / SHIFT)
  if redis.call('HEXISTS', ledger, field_of('repeats', period)) == 0 then
    return 0
  end
  return mark - period * SHIFT, period
end

local function drop_exposures(ledger, exposures)
  held(ledger, 'repeats', server_ms())
  local bytes, period = counted_for(ledger, exposures)
  if bytes > 0 then
    count(ledger, 'repeats', -bytes, period)
  end
  redis.call('DEL', exposures)
end
