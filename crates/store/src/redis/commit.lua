-- Applies write sets one after the other, each whole or not at all, and answers with a number for each:
-- 1: applied; 2: this set was applied before; 0: something it was decided over has moved.
-- KEYS: the time floor; the due list; then for each set the row and the index of each write, and the rows that it holds.
-- ARGV: the time; whether to tell the server's time and the time floor too; then for each set its id, how many writes it has and how many rows
-- it holds; for each write the revision it expects (or nothing), the new row (or nothing, to remove it), its place in the
-- due list, when it is due (or nothing), and how long it lives (or nothing); for each held row the revision it must have (or
-- nothing).
local call = redis.call
-- Always written: what a repeated commit waits for (WAIT) is what its own connection wrote.
local known = call('GET', KEYS[1])
if not known or tonumber(known) < tonumber(ARGV[1]) then known = ARGV[1] end
call('SET', KEYS[1], known)
local due = KEYS[2]
local any_due = call('EXISTS', due) == 1

local verdicts, found, k, a = {}, {}, 3, 3
while a <= #ARGV do
  local id, last, held, verdict = ARGV[a], tonumber(ARGV[a + 1]) - 1, tonumber(ARGV[a + 2]), 1
  a = a + 3
  for i = 0, last do
    local expect, row = ARGV[a + 5 * i], ARGV[a + 5 * i + 1]
    -- A row begins with its format (one byte) and its revision (eight).
    local revision = call('GETRANGE', KEYS[k + 2 * i], 1, 8)
    found[i] = revision
    if row ~= '' and revision == id then
      verdict = 2
    elseif revision ~= expect and (row ~= '' or revision ~= '') and verdict == 1 then
      verdict = 0
    end
  end
  local held_k, held_a = k + 2 * (last + 1), a + 5 * (last + 1)
  for i = 0, held - 1 do
    if verdict == 1 and call('GETRANGE', KEYS[held_k + i], 1, 8) ~= ARGV[held_a + i] then verdict = 0 end
  end
  if verdict == 1 then
    for i = 0, last do
      local key, index = KEYS[k + 2 * i], KEYS[k + 2 * i + 1]
      local b = a + 5 * i
      local row, place, due_at, ttl = ARGV[b + 1], ARGV[b + 2], ARGV[b + 3], ARGV[b + 4]
      -- Should a server ever stop in the middle (a user who may not ZADD), what is left over is an entry without a row,
      -- which readers skip, and never a row that no index knows.
      if row == '' then
        call('DEL', key)
        call('ZREM', index, string.sub(place, 2))
      elseif found[i] == '' then
        call('ZADD', index, 0, string.sub(place, 2))
      end
      if due_at ~= '' then
        call('ZADD', due, due_at, place)
        any_due = true
      elseif any_due then
        call('ZREM', due, place)
      end
      -- Without a time to live, SET takes an older one away.
      if ttl ~= '' then
        call('SET', key, row, 'PX', ttl)
      elseif row ~= '' then
        call('SET', key, row)
      end
    end
  end
  verdicts[#verdicts + 1] = verdict
  k, a = held_k + held, held_a + held
end

if ARGV[2] ~= '' then
  local time = call('TIME')
  verdicts[#verdicts + 1] = tonumber(time[1])
  verdicts[#verdicts + 1] = tonumber(time[2])
  verdicts[#verdicts + 1] = tonumber(known)
end
return verdicts
