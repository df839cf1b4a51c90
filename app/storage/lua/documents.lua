-- KEYS   documents
-- ARGV   most bytes, arms
-- Result the documents of the first of these arms: of at least one, and of as many as take so many bytes together
-- Effect none
-- They are read a few at a time: a command for the length of each would take the store twice as long.
local TOGETHER = 32
local most, bytes, documents = tonumber(ARGV[1]), 0, {}
for first = 2, #ARGV, TOGETHER do
  local some = redis.call('HMGET', KEYS[1], unpack(ARGV, first, math.min(first + TOGETHER - 1, #ARGV)))
  for _, document in ipairs(some) do
    bytes = bytes + #(document or '')
    if bytes > most and #documents > 0 then
      return documents
    end
    documents[#documents + 1] = document
  end
end
return documents
