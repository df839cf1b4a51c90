-- KEYS   record, events, snapshot
-- ARGV   uid, position, state
-- Result 1 when saved, else 0
-- Effect in one step: the snapshot is replaced if the record begins with the uid and no newer one is there.
if string.sub(redis.call('GET', KEYS[1]) or '', 1, #ARGV[1]) ~= ARGV[1] then
  return 0
end
-- A process that was overtaken may save late: the snapshot of more events stays.
local current = redis.call('GETRANGE', KEYS[3], 0, 7)
if current ~= '' and struct.unpack('<I8', current) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[3], struct.pack('<I8', ARGV[2]) .. ARGV[3])
return 1
