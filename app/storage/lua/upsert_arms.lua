-- KEYS   features, documents, counters, changes, stem of the retired keys
-- ARGV   keep_ms, changes kept, then for each arm: id, features, document
-- Result nil when the catalogue was deleted, else {version, 1 when this call changed something else 0, added, updated, {revision of each arm}}
-- Effect in one step: arms are inserted or replaced in the given order. An arm whose features are the same,
--        byte for byte, keeps its revision; else it gets the next one and the old features stay readable under
--        theirs for keep_ms. The changes name every arm whose features or document changed. The version grows by one if anything changed: repeated,
--        it changes nothing.
-- The retired keys cannot be declared before the revisions are read. They are built from a declared key with the
-- same hash tag, so on Redis Cluster they are in the slot that the call was routed by.
local features, documents, counters, changes, retired = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local keep = ARGV[1]
if redis.call('HEXISTS', counters, 'deleted') == 1 then
  return false
end
local version = tonumber(redis.call('HGET', counters, 'version') or 0)
local revision = tonumber(redis.call('HGET', counters, 'revision') or 0)
local added, updated, changed = 0, 0, false
local revisions = {}
for a = 3, #ARGV, 3 do
  local id, new, document = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  local old = redis.call('HGET', features, id)
  local own
  if old and string.sub(old, 9) == new then
    own = struct.unpack('<I8', old)
  else
    revision = revision + 1
    own = revision
    changed = true
    redis.call('HSET', features, id, struct.pack('<I8', own) .. new)
    note(changes, version + 1, id)
    if old then
      local key = retired .. string.format('%.0f', struct.unpack('<I8', old))
      redis.call('SET', key, string.sub(old, 9), 'PX', keep)
    end
  end
  if old then
    updated = updated + 1
  else
    added = added + 1
  end
  local described = false
  if old and document == '' then
    described = redis.call('HDEL', documents, id) == 1
  elseif document ~= '' and redis.call('HGET', documents, id) ~= document then
    redis.call('HSET', documents, id, document)
    described = true
  end
  if described then
    changed = true
    note(changes, version + 1, id)
  end
  revisions[#revisions + 1] = own
end
if changed then
  version = version + 1
  redis.call('HSET', counters, 'version', string.format('%.0f', version), 'revision', string.format('%.0f', revision))
  shorten(changes, tonumber(ARGV[2]))
end
return {version, changed and 1 or 0, added, updated, revisions}
