-- Put before every script that writes many things with one command, which costs a fraction of a command for each.
-- Lua's unpack takes only some thousand values. `words` are names, or pairs.
local function call_with_many(command, key, words)
  for first = 1, #words, 1000 do
    redis.call(command, key, unpack(words, first, math.min(first + 999, #words)))
  end
end
