-- Takes out of an index what has no row any more. KEYS: the index, then rows; ARGV: their places in the index.
local dropped = 0
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then dropped = dropped + redis.call('ZREM', KEYS[1], ARGV[i - 1]) end
end
return dropped
