-- refresh: renew the slots of live streams (taking them again where they expired or were forgotten), count all.
-- KEYS
--   1 streams   zset    session -> Redis ms at which its slot expires
--   2 parked    zset    session -> Redis ms from which it may be reaped
-- ARGV
--   1 now_ms    int     Redis time in ms; 0 asks Redis
--   2 ttl_ms    int     ms until the slots expire unless renewed
--   3 grace_ms  int     ms that a session whose slot expires waits to be resumed
--   4 sessions  strings the live sessions, perhaps none
-- RETURNS {code, slots taken}
--   OK
-- @include now expired
local streams, parked, ttl_ms, grace_ms = KEYS[1], KEYS[2], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = redis_now(ARGV[1])
redis.call('ZREM', streams, '') -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
for i = 4, #ARGV do
  redis.call('ZADD', streams, now + ttl_ms, ARGV[i])
  redis.call('ZREM', parked, ARGV[i])
end
free_expired(streams, parked, now, grace_ms)
return {'OK', redis.call('ZCARD', streams)}
