-- KEYS   row-times, stem of the rows keys of the bandit
-- ARGV   most pieces
-- Result the number of rows, then of one row of each piece the ms and the bytes that it takes, the oldest first
-- Effect none. The rows are cut into so many pieces of one length, or one for each row. Which row of a piece is
--        looked at changes from piece to piece by the golden ratio, so rows that come in turns are not taken for
--        all rows. Of a learner's bytes each of its rows takes its part. The keys follow from the members, with
--        the hash tag of the declared stem.
local ROW, LEARNER = 200, 200 -- bytes that a row and a learner's hash take besides their names and values
local GOLDEN = (math.sqrt(5) - 1) / 2
local rows = redis.call('ZCARD', KEYS[1])
local pieces = math.min(rows, tonumber(ARGV[1]))
local found = { rows }
for i = 0, pieces - 1 do
  local place = pieces == rows and i or math.floor((i + (i * GOLDEN) % 1) * rows / pieces)
  local member = redis.call('ZRANGE', KEYS[1], place, place)[1]
  local field, learner = string.match(member, '^([^/]*)/(.*)$')
  local key = KEYS[2] .. learner
  -- allocators give blocks of some sizes only, an eighth too large on the average
  local bytes = ROW + 2 * #field + #learner + redis.call('HSTRLEN', key, field) * 9 / 8
  found[#found + 1] = tonumber(string.sub(field, 1, 13))
  found[#found + 1] = math.floor(bytes + (LEARNER + #key * 9 / 8) / math.max(1, redis.call('HLEN', key)))
end
return found
