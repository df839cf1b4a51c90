-- WITH   changes
-- KEYS   as of upsert_arms.lua
-- ARGV   keep_ms, changes kept, then ids
-- Result nil when the catalogue was deleted, else {version, {1 when it was there else 0, for each id}}
-- Effect in one step: the arms are removed, their features stay readable by revision for keep_ms, and the
--        version grows by one if there were any, and the changes say so. Repeated, it changes nothing. When an id
--        came is kept as long, for when it returns.
local features, documents, counters, changes, retired, came_of = unpack(KEYS, 1, 6)
if redis.call('HEXISTS', counters, 'deleted') == 1 then
  return false
end
local version = tonumber(redis.call('HGET', counters, 'version') or 0)
local found, any = {}, false
for a = 3, #ARGV do
  local id = ARGV[a]
  local old = redis.call('HGET', features, id)
  if old then
    local key = retired .. string.format('%.0f', struct.unpack('<I8', old))
    -- rewards of decisions that chose the arm still need its features
    redis.call('SET', key, string.sub(old, 17), 'PX', ARGV[1])
    redis.call('SET', came_of .. id, string.sub(old, 9, 16), 'PX', ARGV[1])
    redis.call('HDEL', features, id)
    redis.call('HDEL', documents, id)
    note(changes, version + 1, id)
    any = true
  end
  found[a - 2] = old and 1 or 0
end
if any then
  version = redis.call('HINCRBY', counters, 'version', 1)
  redis.call('HSET', counters, 'arms_version', version)
  shorten(changes, tonumber(ARGV[2]))
  note_catalogue(features, KEYS[7], KEYS[8])
end
return {version, found}
