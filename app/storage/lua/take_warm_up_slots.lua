-- WITH   ledger
-- KEYS   the slots of a learner: 'taken' -> how many, 'c' .. claim -> the first of those it took, 'held' -> the bytes
--        that the ledger counts for them and the period in which they expire; ledger
-- ARGV   count, most, claim or '', ttl_ms, most bytes of slots
-- Result {first slot that is now the caller's, or at least `most` when all are taken, or -1 when there is no space;
--         if some were taken, the bytes of slots that are held now}
-- Effect in one step: the slots are taken, at most once for a claim, and counted; nothing when all are
local TURNS, CLAIM = 220, 80 -- bytes that the slots of a learner take besides their key, and a claim besides its name
local claimed = ARGV[3] ~= '' and redis.call('HGET', KEYS[1], 'c' .. ARGV[3])
if claimed then
  return { tonumber(claimed) }
end
local taken, before = unpack(redis.call('HMGET', KEYS[1], 'taken', 'held'))
taken = tonumber(taken or '0')
if taken >= tonumber(ARGV[2]) then
  return { taken }
end
local counted, until_period = string.match(before or '', '^(%d+) (%d+)$')
local now, bytes = server_ms(), tonumber(counted or TURNS + #KEYS[1])
if ARGV[3] ~= '' then
  bytes = bytes + CLAIM + #ARGV[3]
end
local more = bytes - (counted or 0)
if not has_space(KEYS[2], 'turns', more, ARGV[5], now) and more > 0 then
  return { -1 }
end
local period = period_of(now + tonumber(ARGV[4]))
redis.call('HINCRBY', KEYS[1], 'taken', ARGV[1])
redis.call('HSET', KEYS[1], 'held', string.format('%.0f %.0f', bytes, period))
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'c' .. ARGV[3], taken)
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if counted then -- they expire later now, so they are counted in a later period
  count(KEYS[2], 'turns', -tonumber(counted), tonumber(until_period))
end
return { taken, count(KEYS[2], 'turns', bytes, period) }
