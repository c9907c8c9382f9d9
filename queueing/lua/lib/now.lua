-- Redis time in ms; a test's own `given` > 0 wins.
local function redis_now(given)
  local ms = tonumber(given)
  if ms > 0 then return ms end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
