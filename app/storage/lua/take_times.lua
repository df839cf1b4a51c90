-- WITH   changes
-- KEYS   features, documents, counters, changes; on one server two more, as of upsert_arms.lua
-- ARGV   changes kept, then for each arm: id, when it came in ms since 1970
-- Result nil when the catalogue was deleted, else how many arms are older now
-- Effect in one step: arms that seem to have come later have come then. The version grows by one if there were any, and
--        the changes say so. Repeated, it changes nothing.
local features, counters, changes = KEYS[1], KEYS[3], KEYS[4]
if redis.call('HEXISTS', counters, 'deleted') == 1 then
  return false
end
local score = string.format('%.0f', tonumber(redis.call('HGET', counters, 'version') or 0) + 1)
local older = 0
for a = 2, #ARGV, 2 do
  local id, came = ARGV[a], tonumber(ARGV[a + 1])
  local old = redis.call('HGET', features, id)
  if old and came < struct.unpack('<I8', old, 9) then
    redis.call('HSET', features, id, string.sub(old, 1, 8) .. struct.pack('<I8', came) .. string.sub(old, 17))
    redis.call('ZADD', changes, score, id)
    older = older + 1
  end
end
if older > 0 then
  redis.call('HSET', counters, 'version', score)
  shorten(changes, tonumber(ARGV[1]))
  note_catalogue(features, KEYS[5], KEYS[6])
end
return older
