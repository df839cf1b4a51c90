-- WITH   changes
-- KEYS   features, documents, counters, changes; on one server two more, as of upsert_arms.lua
-- ARGV   version, changes kept, reduction, then for each arm: id, features, document
-- Result 1, or 0 when the catalogue was deleted, has another version, or has a reduction
-- Effect in one step: the reduction is stored for good, and the arms, which must be all, get new features, revisions and
--        documents. The version grows by one.
local features, documents, counters, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local known = redis.call('HMGET', counters, 'version', 'revision', 'fitted', 'deleted')
if known[1] ~= ARGV[1] or known[3] or known[4] then
  return 0
end
local version, revision = tonumber(known[1]) + 1, tonumber(known[2] or 0)
for a = 4, #ARGV, 3 do
  revision = revision + 1
  local came = string.sub(redis.call('HGET', features, ARGV[a]), 9, 16)
  redis.call('HSET', features, ARGV[a], struct.pack('<I8', revision) .. came .. ARGV[a + 1])
  if ARGV[a + 2] == '' then
    redis.call('HDEL', documents, ARGV[a])
  else
    redis.call('HSET', documents, ARGV[a], ARGV[a + 2])
  end
  redis.call('ZADD', changes, string.format('%.0f', version), ARGV[a])
end
redis.call('HSET', counters, 'version', string.format('%.0f', version), 'revision',
  string.format('%.0f', revision), 'fitted', ARGV[3], 'arms_version', string.format('%.0f', version))
shorten(changes, tonumber(ARGV[2]))
note_catalogue(features, KEYS[5], KEYS[6])
return 1
