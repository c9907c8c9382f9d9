-- acquire: take one of the slots for live streams, or renew the one that is held.
-- KEYS
--   1 streams   zset    session -> Redis ms at which its slot expires
--   2 parked    zset    session -> Redis ms from which it may be reaped
-- ARGV
--   1 now_ms    int     Redis time in ms; 0 asks Redis
--   2 session   string
--   3 cap       int     slots there are
--   4 ttl_ms    int     ms until the slot expires unless renewed
--   5 grace_ms  int     ms that a session whose slot expires waits to be resumed
--   6 resumed   int     1: the session is back, and lives whether a slot is free or not
-- RETURNS {code, slots taken}
--   TAKEN  the session holds a slot
--   HELD   all slots are taken, some by sessions whose clients may come back
--   FULL   all slots are taken
-- @include now expired
local streams, parked, session, ttl_ms = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[4])
local grace_ms, resumed = tonumber(ARGV[5]), ARGV[6] == '1'
local now = redis_now(ARGV[1])
if resumed then redis.call('ZREM', streams, '') end -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
free_expired(streams, parked, now, grace_ms)
local taken = redis.call('ZCARD', streams)
if redis.call('ZSCORE', streams, session) then
  taken = taken - 1
elseif not resumed and taken >= tonumber(ARGV[3]) then
  if redis.call('ZCARD', parked) > 0 then return {'HELD', taken} end
  return {'FULL', taken}
end
redis.call('ZADD', streams, now + ttl_ms, session)
if resumed then redis.call('ZREM', parked, session) end
return {'TAKEN', taken + 1}
