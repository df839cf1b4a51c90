-- Put after many.lua before every script that writes or removes the sums of arms, a hash for each bandit.
-- Its field "" has the bytes that they take, which the ledger of the partition counts as well.
local SUMS = 100 -- bytes that the sums of an arm take besides its name and themselves; see docs/limits.md
local function count_sums(ledger, key, bytes)
  redis.call('HINCRBY', key, '', bytes)
  redis.call('HINCRBY', ledger, 'effects', bytes)
end
-- `sums`: arm and sums, one after the other. Without sums ('') those of the arm are removed.
local function write_sums(ledger, key, sums)
  local bytes, kept, dropped = 0, {}, {}
  for i = 1, #sums, 2 do
    local arm, value = sums[i], sums[i + 1]
    local had = redis.call('HSTRLEN', key, arm)
    bytes = bytes - (had > 0 and SUMS + #arm + had or 0)
    if value ~= '' then
      bytes = bytes + SUMS + #arm + #value
      kept[#kept + 1], kept[#kept + 2] = arm, value
    elseif had > 0 then
      dropped[#dropped + 1] = arm
    end
  end
  call_with_many('HSET', key, kept)
  call_with_many('HDEL', key, dropped)
  if bytes ~= 0 then
    count_sums(ledger, key, bytes)
  end
end
local function drop_sums(ledger, key)
  local held = redis.call('HGET', key, '')
  if held then
    redis.call('HINCRBY', ledger, 'effects', 0 - tonumber(held))
    redis.call('UNLINK', key)
  end
end
