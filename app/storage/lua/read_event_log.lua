-- KEYS   record, events, snapshot
-- ARGV   uid, position, most events
-- Result {record, position, state or '', {events}}, or nil when there is no record
-- Effect none. Without a snapshot that the caller needs, events are read from the first on.
local record = redis.call('GET', KEYS[1])
if not record then
  return false
end
local position, state = tonumber(ARGV[2]), ''
if ARGV[1] == '' or string.sub(record, 1, #ARGV[1]) ~= ARGV[1] then
  local snapshot = redis.call('GET', KEYS[3])
  position = snapshot and struct.unpack('<I8', snapshot) or 0
  state = snapshot and string.sub(snapshot, 9) or ''
end
return {record, position, state, redis.call('LRANGE', KEYS[2], position, position + tonumber(ARGV[3]) - 1)}
