-- reap: sessions that nobody resumed in time, for one caller to take out of Redis. Should it die over that, another
-- caller gets them again.
-- KEYS
--   1 streams   zset    session -> Redis ms at which its slot expires
--   2 parked    zset    session -> Redis ms from which it may be reaped
-- ARGV
--   1 now_ms    int     Redis time in ms; 0 asks Redis
--   2 grace_ms  int     ms that a session whose slot expires waits to be resumed
--   3 again_ms  int     ms until another caller may get the same sessions
--   4 most      int     sessions at once
-- RETURNS {code, the sessions}
--   OK
-- @include now expired
local streams, parked, grace_ms, again_ms = KEYS[1], KEYS[2], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = redis_now(ARGV[1])
redis.call('ZREM', streams, '') -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
free_expired(streams, parked, now, grace_ms)
local due = redis.call('ZRANGEBYSCORE', parked, '-inf', now, 'LIMIT', 0, tonumber(ARGV[4]))
for _, session in ipairs(due) do redis.call('ZADD', parked, now + again_ms, session) end
return {'OK', due}
