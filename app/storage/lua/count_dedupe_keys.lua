-- KEYS   seen-ends, stem of the seen-until keys
-- Result how many dedupe keys of decisions are kept
-- Effect none. The keys that are read have the hash tag of the declared stem: see drop_expired.
local count = 0
for _, last_ms in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  count = count + redis.call('HLEN', KEYS[2] .. last_ms)
end
return count
