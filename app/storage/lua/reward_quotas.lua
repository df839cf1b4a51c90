-- WITH   quota_window
-- KEYS   for each quota: itself, its shares
-- ARGV   for each quota: how many rewards
-- Effect in one step: they are counted in the current windows; of a quota that is gone, or does not hold, nothing is.
local now = server_ms()
for place = 1, #KEYS / 2 do
  local quota = quota_now(KEYS[2 * place - 1], KEYS[2 * place], now)
  if quota and quota.holds then
    redis.call('HINCRBY', KEYS[2 * place - 1], 'rewarded', ARGV[place])
  end
end
