-- WITH   changes
-- KEYS   features, documents, counters, changes, stem of the retired keys, stem of the keys that say when deleted ids
--        came; on one server also the number of writes to all catalogues, and the log of catalogues that changed
-- ARGV   keep_ms, changes kept, 1 if the writer knows that a basis was fitted to the arms else 0, then for each
--        arm: id, features, document
-- Result nil when the catalogue was deleted, 'fitted' when a basis was fitted that the writer does not know, else
--        {version, 1 when this call changed something else 0, added, updated,
--        {revision of each arm}, {when the id of each arm came, ms since 1970}}
-- Effect in one step: arms are inserted or replaced in the given order. An arm whose features are the same,
--        byte for byte, keeps its revision; else it gets the next one and the old features stay readable under
--        theirs for keep_ms. An id that is new came now, by the clock of the server, or when it came before it was
--        deleted, while that is kept. The changes name every arm whose features or document changed. The version
--        grows by one if anything changed: repeated, it changes nothing.
-- Arms are read and written a few hundred at a time: a command for each would take the store twice as long.
-- The retired keys cannot be declared before the revisions are read. They are built from a declared key with the
-- same hash tag, so on Redis Cluster they are in the slot that the call was routed by.
local features, documents, counters, changes, retired, came_of = unpack(KEYS, 1, 6)
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
local revisions, cames = {}, {}
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
-- When ids came that were there before and were deleted, while that is kept. One command for all, and none where no
-- id is new. Built from a declared key, as the retired ones.
local function came_before(ids, olds)
  local names, places, found = {}, {}, {}
  for i = 1, #ids do
    if not olds[i] then
      names[#names + 1] = came_of .. ids[i]
      places[#places + 1] = i
    end
  end
  if #names > 0 then
    local kept = redis.call('MGET', unpack(names))
    for n = 1, #names do
      found[places[n]] = kept[n]
    end
  end
  return found
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
  local left = came_before(ids, olds)
  local vectors, texts, bare, noted = {}, {}, {}, {}
  -- the version that this call makes if it changes anything
  local score = string.format('%.0f', version + 1)
  for i = 1, count do
    local id, new, document = ids[i], ARGV[a + 3 * i - 2], ARGV[a + 3 * i - 1]
    local old, differs, own = olds[i], false, nil
    local came = old and string.sub(old, 9, 16) or left[i] or now
    if old and string.sub(old, 17) == new then
      own = struct.unpack('<I8', old)
    else
      revision = revision + 1
      own = revision
      differs = true
      reshaped = true
      vectors[#vectors + 1] = id
      vectors[#vectors + 1] = struct.pack('<I8', own) .. came .. new
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
    cames[#cames + 1] = struct.unpack('<I8', came)
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
  note_catalogue(features, KEYS[7], KEYS[8])
end
return {version, changed and 1 or 0, added, updated, revisions, cames}
