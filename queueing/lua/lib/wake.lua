-- Waking workers. Needs the local: wake.
-- A token wakes one blocked worker; that worker's claim passes the word on while work remains.
local WAKE_CAP = 64
local function arm()
  if redis.call('LLEN', wake) < WAKE_CAP then redis.call('LPUSH', wake, 1) end
end
