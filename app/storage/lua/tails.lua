-- Put before every script that reads or writes the tails of learners.
-- The tails of all learners of a bandit are one sorted set, all scores 0, so that its members are in the order of
-- their bytes: "<length of the learner's name>.<name>:" and the entry id with zeros before both of its numbers.
-- The length keeps apart a name that begins with another one.
local function tail_stem(learner)
  return string.format('%d.%s', #learner, learner)
end
local function tail_range(stem)
  return '[' .. stem .. ':', '(' .. stem .. ';'
end
local function tail_member(stem, id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return string.format('%s:%016.0f-%016.0f', stem, ms, n)
end
local function tail_id(member)
  local ms, n = string.match(member, '(%d+)%-(%d+)$')
  return string.format('%.0f-%.0f', tonumber(ms), tonumber(n))
end
-- An entry that the log lacks comes without fields: nobody can fold it.
local function tail_entries(log, members)
  local entries = {}
  for i, member in ipairs(members) do
    local id = tail_id(member)
    entries[i] = redis.call('XRANGE', log, id, id)[1] or { id, {} }
  end
  return entries
end

-- Whether a learner is as it was read: its checkpoint begins with these bytes, so many at most, or there is none; and
-- its tail has so many entries.
local function is_as_read(states, tails, learner, known, size, tail)
  local standing = redis.call('HGET', states, learner) or ''
  local least, most = tail_range(tail_stem(learner))
  return string.sub(standing, 1, tonumber(size)) == known
    and redis.call('ZLEXCOUNT', tails, least, most) == tonumber(tail)
end
