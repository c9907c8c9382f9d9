-- acquire: take one of the slots for live streams, or renew the one that is held.
-- KEYS
--   1 streams  zset    session -> Redis ms at which its slot expires
-- ARGV
--   1 now_ms   int     Redis time in ms; 0 asks Redis
--   2 session  string
--   3 cap      int     slots there are
--   4 ttl_ms   int     ms until the slot expires unless renewed
-- RETURNS {code, slots taken}
--   TAKEN  the session holds a slot
--   FULL   all slots are taken
local streams, session, ttl_ms = KEYS[1], ARGV[2], tonumber(ARGV[4])
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZREMRANGEBYSCORE', streams, '-inf', now)
local taken = redis.call('ZCARD', streams)
if redis.call('ZSCORE', streams, session) then
  taken = taken - 1
elseif taken >= tonumber(ARGV[3]) then
  return {'FULL', taken}
end
redis.call('ZADD', streams, now + ttl_ms, session)
return {'TAKEN', taken + 1}
