-- settle_dead: an operator queues a dead job anew, or drops it.
-- KEYS
--   1 heads                string  index of the lanes' heads
--   2 lane_prefix          prefix  + lane: zset of waiting jobs
--   3 wake                 list    tokens for blocked workers
--   4 job_prefix           prefix  + id: hash of a job
--   5 session_jobs_prefix  prefix  + session: set of its ids
--   6 dead                 zset    id -> time of death, ms
--   7 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 id                   string  the dead job
--   3 retry                int     1: queue it anew, as if it came now; 0: drop it
--   4 job_ttl_ms           int     ms of life of the hashes
-- RETURNS code
--   OK         done
--   NONE       no dead job of this id
--   NOPOLICY   Redis holds no ranks: set the policy, then try again
local heads, lane_prefix, wake, job_prefix = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, job_key, job_ttl_ms = ARGV[2], job_prefix .. ARGV[2], ARGV[4]
-- @include now wake lanes jobs
local job = read(id)
if ARGV[3] == '1' and job and not rank_of(job.lane) then return 'NOPOLICY' end
if redis.call('ZREM', KEYS[6], id) == 0 or not job then return 'NONE' end
if ARGV[3] == '0' then
  redis.call('DEL', job_key)
  redis.call('HINCRBY', KEYS[7], job.kind .. ':dropped', 1)
  return 'OK'
end
local now = redis_now(ARGV[1])
redis.call('HDEL', job_key, 'error_code', 'error_message', 'died_ms', 'claimed_ms')
redis.call('HSET', job_key, 'state', 'queued', 'attempts', 0, 'arrival_ms', now)
redis.call('SADD', KEYS[5] .. job.session, id)
redis.call('PEXPIRE', job_key, job_ttl_ms)
redis.call('PEXPIRE', KEYS[5] .. job.session, job_ttl_ms)
put(job.lane, id, now)
redis.call('HINCRBY', KEYS[7], job.kind .. ':queued', 1)
return 'OK'
