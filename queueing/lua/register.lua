-- register: a worker joins, and those whose record expired leave.
-- KEYS
--   1 workers              zset    worker -> when it joined, ms
--   2 worker_prefix        prefix  + worker: JSON record, expires without heartbeats
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 worker               string  who joins; its record is written already
-- RETURNS code
--   OK
-- @include now
for _, worker in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if redis.call('EXISTS', KEYS[2] .. worker) == 0 then redis.call('ZREM', KEYS[1], worker) end
end
redis.call('ZADD', KEYS[1], 'NX', redis_now(ARGV[1]), ARGV[2])
return 'OK'
