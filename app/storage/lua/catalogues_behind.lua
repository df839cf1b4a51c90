-- KEYS   counters of each catalogue
-- ARGV   version of each that is known
-- Result which of them are in another version, by their place from 1
-- Effect none.
local behind = {}
for i, counters in ipairs(KEYS) do
  if (redis.call('HGET', counters, 'version') or '0') ~= ARGV[i] then
    behind[#behind + 1] = i
  end
end
return behind
