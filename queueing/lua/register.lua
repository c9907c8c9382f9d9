-- register: a worker joins, and those whose record expired leave.
-- KEYS
--   1 workers              zset    worker -> when it joined, ms
--   2 worker_prefix        prefix  + worker: JSON record, expires without heartbeats
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 worker               string  who joins
--   3 ttl_ms               int     ms of life of its record
--   4 record               string  its record, JSON; empty where that is written already
-- RETURNS code
--   OK
-- @include now
-- First a write that takes no memory: see queueing.scripts.guarded.
redis.call('PEXPIRE', KEYS[2] .. ARGV[2], ARGV[3])
if ARGV[4] ~= '' then redis.call('SET', KEYS[2] .. ARGV[2], ARGV[4], 'PX', ARGV[3]) end
for _, worker in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if redis.call('EXISTS', KEYS[2] .. worker) == 0 then redis.call('ZREM', KEYS[1], worker) end
end
redis.call('ZADD', KEYS[1], 'NX', redis_now(ARGV[1]), ARGV[2])
return 'OK'
