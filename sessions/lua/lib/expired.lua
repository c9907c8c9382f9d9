-- Slots that expired are free. The front ends of their sessions are dead, or the sessions are parked already: whoever
-- reaps finds them among the parked, `grace_ms` from when that was seen.
local function free_expired(streams, parked, now, grace_ms)
  for _, session in ipairs(redis.call('ZRANGEBYSCORE', streams, '-inf', now)) do
    redis.call('ZADD', parked, 'NX', now + grace_ms, session)
  end
  redis.call('ZREMRANGEBYSCORE', streams, '-inf', now)
end
