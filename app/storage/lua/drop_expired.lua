-- WITH   log_tail
-- KEYS   log, watermark, refused, seen-ends, due, forgotten-until, stem of the seen-until keys, stem of the
--        forgotten keys
-- ARGV   margin_ms, most of each kind
-- Result how many periods and forgotten learners were dropped
-- Effect in one step: dedupe keys of decisions that expired margin_ms ago by the clock of the server, and what is
--        known of learners that were forgotten so long ago that no decision from before is left, are dropped.
--        From then on every decision is refused that could have needed them: one that expires as early and knows
--        no entry that was appended since ('expires' and 'known' of refused), and one from before the entry that
--        forgot a learner ('forgotten'). These only grow. The keys of a period stay while a default is owed to
--        one of its decisions: they tell whether a reward came.
-- Which keys are dropped is known only here. They are built from declared stems with the same hash tag, so on
-- Redis Cluster they are in the slot that the call was routed by.
local refused, ends, due, forgotten_until = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1]))
local owed = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]

local function raise(name, value)
  if tonumber(value) > tonumber(redis.call('HGET', refused, name) or 0) then
    redis.call('HSET', refused, name, value)
  end
end

-- A server without memory refuses the first write of a script if it could take memory, and no later one: this one
-- takes none, so that what gives memory back is done.
redis.call('HDEL', refused, '')
local dropped = 0
for _, last_ms in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, ARGV[2])) do
  if owed and tonumber(owed) <= tonumber(last_ms) then
    break
  end
  raise('expires', last_ms)
  redis.call('UNLINK', KEYS[7] .. last_ms)
  redis.call('ZREM', ends, last_ms)
  dropped = dropped + 1
end
if dropped > 0 then -- what was counted knew no entry from its own one on
  local _, newest = next_id(KEYS[1], KEYS[2])
  raise('known', string.format('%.0f', tonumber(string.match(newest, '%d+$')) - 1))
end
for _, learner in ipairs(redis.call('ZRANGEBYSCORE', forgotten_until, '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local entry = string.match(redis.call('GET', KEYS[8] .. learner) or '', '%d+$')
  if entry then
    raise('forgotten', entry)
  end
  redis.call('UNLINK', KEYS[8] .. learner)
  redis.call('ZREM', forgotten_until, learner)
  dropped = dropped + 1
end
return dropped
