-- WITH   changes
-- KEYS   counters, changes: of the arms of a catalogue, or of all catalogues
-- ARGV   version that is known, changes kept
-- Result {version}, or {version, {ids changed since}}, or {version, nil} when it is not known which
-- Effect none. A version below the known one means that the store has lost writes.
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
local known = tonumber(ARGV[1])
if version == known then
  return { version }
end
return { version, version > known and changed_since(KEYS[2], known, tonumber(ARGV[2])) }
