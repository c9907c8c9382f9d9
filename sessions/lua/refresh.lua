-- refresh: renew the slots of live streams (taking them again where they expired or were forgotten), count all.
-- KEYS
--   1 streams   zset    session -> Redis ms at which its slot expires
-- ARGV
--   1 now_ms    int     Redis time in ms; 0 asks Redis
--   2 ttl_ms    int     ms until the slots expire unless renewed
--   3 sessions  strings the live sessions, perhaps none
-- RETURNS {code, slots taken}
--   OK
local streams, ttl_ms = KEYS[1], tonumber(ARGV[2])
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZREM', streams, '') -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
for i = 3, #ARGV do redis.call('ZADD', streams, now + ttl_ms, ARGV[i]) end
redis.call('ZREMRANGEBYSCORE', streams, '-inf', now)
return {'OK', redis.call('ZCARD', streams)}
