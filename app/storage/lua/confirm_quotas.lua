-- WITH   quota_window
-- KEYS   held, held-until
-- ARGV   decision, when it expires in ms, margin in ms
-- Result 1: what it took stays taken, also when this is repeated; 0: it is too late
-- Effect in one step: nothing is given back of the decision, for it was shown.
if server_ms() >= tonumber(ARGV[2]) + tonumber(ARGV[3]) then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
