-- WITH   changes
-- KEYS   log, watermark, changes
-- ARGV   watermark that is known or '', changes kept
-- Result {watermark, newest entry}, with a third item when the watermark is not the known one: the learners
--        changed since, each after its bandit's uid, and again after a '-' when it was removed; or nil when it
--        is not known which
-- Effect none. A watermark below the known one means that the store has lost writes.
local watermark = redis.call('GET', KEYS[2]) or '0-0'
local entry = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local newest = entry and entry[1] or watermark
if watermark == ARGV[1] then
  return { watermark, newest }
end
local known = tonumber(string.match(ARGV[1], '%d+$'))
local listed = false
if known and known < tonumber(string.match(watermark, '%d+$')) then
  listed = changed_since(KEYS[3], known, tonumber(ARGV[2]))
end
return { watermark, newest, listed }
