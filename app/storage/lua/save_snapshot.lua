-- WITH   event_log_size
-- KEYS   record, events, snapshot, size
-- ARGV   uid, position, state, bytes that were reserved for the log just now, or 0
-- Result 1 when saved, 0 when not, or the bytes that the log would take, when they are not reserved
-- Effect in one step: the snapshot is replaced if the record begins with the uid and no newer one is there.
if string.sub(redis.call('GET', KEYS[1]) or '', 1, #ARGV[1]) ~= ARGV[1] then
  return 0
end
-- A process that was overtaken may save late: the snapshot of more events stays.
local current = redis.call('GETRANGE', KEYS[3], 0, 7)
if current ~= '' and struct.unpack('<I8', current) >= tonumber(ARGV[2]) then
  return 0
end
local bytes = too_large(KEYS[4], KEYS[1], event_bytes(KEYS[4]), 8 + #ARGV[3], ARGV[4])
if bytes then
  return bytes
end
redis.call('SET', KEYS[3], struct.pack('<I8', ARGV[2]) .. ARGV[3])
return 1
