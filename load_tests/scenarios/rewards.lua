-- wrk -t 1 -s rewards.lua URL -- TOKENS [PAUSE_MS] : each request rewards one decision of the file TOKENS,
-- one token a line. When they are used up it starts again from the first. PAUSE_MS is waited between the
-- requests of a connection.
local tokens, at = {}, 0
local headers = {["Content-Type"] = "application/json"}

function init(arguments)
  for token in io.lines(arguments[1]) do
    tokens[#tokens + 1] = token
  end
  local pause = tonumber(arguments[2]) or 0
  if pause > 0 then
    delay = function() return pause end
  end
end

function request()
  at = at % #tokens + 1
  local value = string.format("%.3f", math.random())
  return wrk.format("POST", "/v1/rewards", headers,
    '{"rewards":[{"decision":"' .. tokens[at] .. '","value":' .. value .. "}]}")
end

dofile((debug.getinfo(1, "S").source:sub(2):match(".*/") or "./") .. "summary.lua")
