-- park: a session has lost its connection and waits to be resumed.
-- KEYS
--   1 streams   zset    session -> Redis ms at which its slot expires
--   2 parked    zset    session -> Redis ms from which it may be reaped
-- ARGV
--   1 now_ms    int     Redis time in ms; 0 asks Redis
--   2 session   string
--   3 grace_ms  int     ms that it waits
--   4 keep      int     1: it keeps its slot; 0: only its end may have been missed, the slot is free
-- RETURNS {code, sessions that are parked}
--   OK
-- @include now
local streams, parked, session, grace_ms = KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[3])
local now = redis_now(ARGV[1])
redis.call('ZREM', streams, session) -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
redis.call('ZADD', parked, now + grace_ms, session)
if ARGV[4] == '1' then redis.call('ZADD', streams, now + grace_ms, session) end
return {'OK', redis.call('ZCARD', parked)}
