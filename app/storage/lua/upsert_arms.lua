-- WITH   changes
-- KEYS   features, documents, counters, changes, stem of the retired keys; on one server also the number of writes to
--        all catalogues, and the log of catalogues that changed
-- ARGV   keep_ms, changes kept, 1 if the writer knows that a basis was fitted to the arms else 0, then for each
--        arm: id, features, document
-- Result nil when the catalogue was deleted, 'fitted' when a basis was fitted that the writer does not know, else
--        {version, 1 when this call changed something else 0, added, updated,
--        {revision of each arm}}
-- Effect in one step: arms are inserted or replaced in the given order. An arm whose features are the same,
--        byte for byte, keeps its revision; else it gets the next one and the old features stay readable under
--        theirs for keep_ms. An id that is new came now, by the clock of the server. The changes name every arm whose features or document changed. The version grows by one if
--        anything changed: repeated, it changes nothing.
-- Arms are read and written a few hundred at a time: a command for each would take the store twice as long.
-- The retired keys cannot be declared before the revisions are read. They are built from a declared key with the
-- same hash tag, so on Redis Cluster they are in the slot that the call was routed by.
local features, documents, counters, changes, retired = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local keep = ARGV[1]
local TOGETHER = 250
local time = redis.call('TIME')
local now = struct.pack('<I8', time[1] * 1000 + math.floor(time[2] / 1000))
if redis.call('HEXISTS', counters, 'deleted') == 1 then
  return false
end
local known = redis.call('HMGET', counters, 'version', 'revision', 'fitted')
if known[3] and ARGV[3] == '0' then
  return 'fitted'
end
local version, revision = tonumber(known[1] or 0), tonumber(known[2] or 0)
local added, updated, changed, reshaped = 0, 0, false, false
local revisions = {}
-- How many arms from argument `first` on are taken together: fewer where an id comes again, for the second one
-- must find what the first one wrote.
local function together(first)
  local seen, count = {}, 0
  for a = first, #ARGV, 3 do
    if count == TOGETHER or seen[ARGV[a]] then
      break
    end
    seen[ARGV[a]] = true
    count = count + 1
  end
  return count
end
local function write(command, key, words)
  if #words > 0 then
    redis.call(command, key, unpack(words))
  end
end
local a = 4
while a <= #ARGV do
  local count = together(a)
  local ids = {}
  for i = 1, count do
    ids[i] = ARGV[a + 3 * (i - 1)]
  end
  local olds = redis.call('HMGET', features, unpack(ids))
  local described = redis.call('HMGET', documents, unpack(ids))
  local vectors, texts, bare, noted = {}, {}, {}, {}
  -- the version that this call makes if it changes anything
  local score = string.format('%.0f', version + 1)
  for i = 1, count do
    local id, new, document = ids[i], ARGV[a + 3 * i - 2], ARGV[a + 3 * i - 1]
    local old, differs, own = olds[i], false, nil
    if old and string.sub(old, 17) == new then
      own = struct.unpack('<I8', old)
    else
      revision = revision + 1
      own = revision
      differs = true
      reshaped = true
      vectors[#vectors + 1] = id
      vectors[#vectors + 1] = struct.pack('<I8', own) .. (old and string.sub(old, 9, 16) or now) .. new
      if old then
        local key = retired .. string.format('%.0f', struct.unpack('<I8', old))
        -- rewards of decisions that chose the arm with these features still need them
        redis.call('SET', key, string.sub(old, 17), 'PX', keep)
      end
    end
    if old then
      updated = updated + 1
    else
      added = added + 1
    end
    if document ~= (described[i] or '') then
      differs = true
      if document == '' then
        bare[#bare + 1] = id
      else
        texts[#texts + 1] = id
        texts[#texts + 1] = document
      end
    end
    if differs then
      changed = true
      noted[#noted + 1] = score
      noted[#noted + 1] = id
    end
    revisions[#revisions + 1] = own
  end
  write('HSET', features, vectors)
  write('HSET', documents, texts)
  write('HDEL', documents, bare)
  write('ZADD', changes, noted)
  a = a + 3 * count
end
if changed then
  version = version + 1
  redis.call('HSET', counters, 'version', string.format('%.0f', version), 'revision', string.format('%.0f', revision))
  -- from which version on the arms have had these features; of a catalogue that never said it, from the last one
  if reshaped then
    redis.call('HSET', counters, 'arms_version', string.format('%.0f', version))
  else
    redis.call('HSETNX', counters, 'arms_version', string.format('%.0f', version - 1))
  end
  shorten(changes, tonumber(ARGV[2]))
  note_catalogue(features, KEYS[6], KEYS[7])
end
return {version, changed and 1 or 0, added, updated, revisions}
