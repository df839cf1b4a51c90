-- KEYS   features, documents, counters, stem of the retired keys (see upsert_arms.lua)
-- ARGV   keep_ms, then ids
-- Result {version, {1 when it was there else 0, for each id}}
-- Effect in one step: the arms are removed, their features stay readable by revision for keep_ms, and the
--        version grows by one if there were any. Repeated, it changes nothing.
local features, documents, counters, retired = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local found, any = {}, false
for a = 2, #ARGV do
  local id = ARGV[a]
  local old = redis.call('HGET', features, id)
  if old then
    local key = retired .. string.format('%.0f', struct.unpack('<I8', old))
    redis.call('SET', key, string.sub(old, 9), 'PX', ARGV[1])
    redis.call('HDEL', features, id)
    redis.call('HDEL', documents, id)
    any = true
  end
  found[a - 1] = old and 1 or 0
end
if any then
  redis.call('HINCRBY', counters, 'version', 1)
end
return {tonumber(redis.call('HGET', counters, 'version') or 0), found}
