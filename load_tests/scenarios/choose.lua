-- wrk -s choose.lua URL -- BANDIT KEYS : decisions for random keys of a bandit of scope per_key.
local path, keys
local headers = {["Content-Type"] = "application/json"}

function init(arguments)
  path, keys = "/v1/bandits/" .. arguments[1] .. "/choose", tonumber(arguments[2])
  math.randomseed(os.time())
end

function request()
  return wrk.format("POST", path, headers, string.format('{"key":"user-%05d"}', math.random(0, keys - 1)))
end

dofile((debug.getinfo(1, "S").source:sub(2):match(".*/") or "./") .. "summary.lua")
