-- Put before every script that writes or removes the sums of arms, a hash for each bandit.
-- Its field "" has the bytes that they take, which the ledger of the partition counts as well.
local SUMS = 100 -- bytes that the sums of an arm take besides its name and themselves; see docs/limits.md
local function count_sums(ledger, key, bytes)
  redis.call('HINCRBY', key, '', bytes)
  redis.call('HINCRBY', ledger, 'effects', bytes)
end
-- Without sums ('') those of the arm are removed.
local function write_sums(ledger, key, arm, sums)
  local had = redis.call('HSTRLEN', key, arm)
  local was, is = had > 0 and SUMS + #arm + had or 0, #sums > 0 and SUMS + #arm + #sums or 0
  if is > 0 then
    redis.call('HSET', key, arm, sums)
  elseif was > 0 then
    redis.call('HDEL', key, arm)
  end
  if is ~= was then
    count_sums(ledger, key, is - was)
  end
end
local function drop_sums(ledger, key)
  local held = redis.call('HGET', key, '')
  if held then
    redis.call('HINCRBY', ledger, 'effects', 0 - tonumber(held))
    redis.call('UNLINK', key)
  end
end
