-- complete: publish a result and release the lease, once.
-- KEYS
--   1 job_prefix           prefix  + id: hash of a job
--   2 leases               zset    id -> lease expiry, ms
--   3 open_partial         hash    session -> its partial's id
--   4 session_prefix       prefix  + session: hash with last_final, last_partial, forgotten
--   5 session_jobs_prefix  prefix  + session: set of its ids
--   6 events_prefix        prefix  + session: stream of durable events
--   7 costs                hash    lane -> learned cost, ms
--   8 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 id                   string  the job's id
--   3 session              string  its session
--   4 generation           int     of the lease: the right to complete
--   5 decode_ms            float   ms of a worker's time, a batch's divided by its size
--   6 result               string  JSON object
--   7 front_prefix         string  + front: channel of a front end
--   8 events_ttl_ms        int     ms of life of the event stream
--   9 max_events           int     events kept for a session
--  10 job_ttl_ms           int     ms of life of the finished job's hash
--  11 learn                int     1: decode_ms tells what a job of this lane costs; 0: it never reached the model
-- RETURNS code
--   DONE       published now, or before by this same generation
--   STALE      the lease was lost: nothing was published
--   CANCELLED  the job was cancelled: nothing was published
local job_prefix, open_partial, session_prefix = KEYS[1], KEYS[3], KEYS[4]
local session_jobs_prefix, events_prefix = KEYS[5], KEYS[6]
local id, session, generation, decode_ms = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local front_prefix, events_ttl_ms, max_events, job_ttl_ms = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local LEARNING_RATE = 0.1 -- the average follows about the last twenty decodes of a lane
local MOST_AT_ONCE = 4 -- a machine that stood still for a while must not pass for a lane that costs seconds
-- @include now jobs leave forget deliver
local key, session_key = job_prefix .. id, session_prefix .. session
local job = read(id)
if not job then
  local past = redis.call('HGET', session_key, 'last_partial')
  return past == id .. ' ' .. generation .. ' done' and 'DONE' or 'STALE'
end
if job.generation ~= generation then return 'STALE' end
if job.state == 'cancelled' then
  redis.call('DEL', key)
  return 'CANCELLED'
end
if job.state == 'done' then return 'DONE' end
if job.state ~= 'leased' then return 'STALE' end

local now = redis_now(ARGV[1])
redis.call('ZREM', KEYS[2], id)
deliver(id, job, now, 'done', decode_ms, ARGV[6], 'null')
if ARGV[11] == '1' then
  local learned = tonumber(redis.call('HGET', KEYS[7], job.lane))
  local seen = learned and math.min(decode_ms, MOST_AT_ONCE * learned) or decode_ms
  redis.call('HSET', KEYS[7], job.lane, learned and learned + LEARNING_RATE * (seen - learned) or seen)
end
redis.call('HINCRBY', KEYS[8], job.kind .. ':done', 1)
if job.kind == 'partial' then
  leave_session(id, session)
  redis.call('DEL', key)
  redis.call('HSET', session_key, 'last_partial', id .. ' ' .. generation .. ' done')
  redis.call('PEXPIRE', session_key, job_ttl_ms)
else
  redis.call('HDEL', key, 'options')
  redis.call('HSET', key, 'state', 'done', 'completed_ms', now)
  redis.call('PEXPIRE', key, job_ttl_ms)
end
return 'DONE'
