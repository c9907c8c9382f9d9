-- fail: report a decode that failed. A final or file is tried again while attempts remain; a partial never is.
-- KEYS
--   1 heads                string  index of the lanes' heads
--   2 lane_prefix          prefix  + lane: zset of waiting jobs
--   3 wake                 list    tokens for blocked workers
--   4 job_prefix           prefix  + id: hash of a job
--   5 leases               zset    id -> lease expiry, ms
--   6 open_partial         hash    session -> its partial's id
--   7 session_prefix       prefix  + session: hash with last_final, last_partial, forgotten
--   8 session_jobs_prefix  prefix  + session: set of its ids
--   9 events_prefix        prefix  + session: stream of durable events
--  10 dead                 zset    id -> time of death, ms
--  11 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 id                   string  the job's id
--   3 session              string  its session
--   4 generation           int     of the lease: the right to report
--   5 retry                int     1: another attempt may help; 0: it will not
--   6 error_code           string  for the client, e.g. decode_failed
--   7 message              string  for the client
--   8 max_attempts         int     claims of one job
--   9 front_prefix         string  + front: channel of a front end
--  10 events_ttl_ms        int     ms of life of the event stream
--  11 max_events           int     events kept for a session
--  12 job_ttl_ms           int     ms of life of the hashes
--  13 dead_ttl_ms          int     ms that a dead job is kept
--  14 max_dead             int     dead jobs kept
--  15 keep                 int     1: a dead job is kept for the operator; 0: its client is to blame, only it is told
-- RETURNS code
--   REQUEUED   waits again with its age, also when this generation reported before
--   DEAD       given up, its session is told; also when this generation reported before
--   STALE      the lease was lost
--   CANCELLED  the job was cancelled
--   NOPOLICY   Redis holds no ranks: set the policy, then try again
local heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local open_partial, session_prefix, session_jobs_prefix, events_prefix = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local dead, counts, id, session, generation = KEYS[10], KEYS[11], ARGV[2], ARGV[3], ARGV[4]
local front_prefix, events_ttl_ms, max_events, job_ttl_ms = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local dead_ttl_ms, max_dead = tonumber(ARGV[13]), tonumber(ARGV[14])
-- @include now wake lanes jobs leave forget deliver give_up requeue
local job = read(id)
if not job then
  local past = redis.call('HGET', session_prefix .. session, 'last_partial')
  return past == id .. ' ' .. generation .. ' dead' and 'DEAD' or 'STALE'
end
if job.generation ~= generation then return 'STALE' end
if job.state == 'cancelled' then
  redis.call('DEL', job_prefix .. id)
  return 'CANCELLED'
end
if job.state == 'dead' then return 'DEAD' end
if job.state == 'queued' then return 'REQUEUED' end
if job.state ~= 'leased' then return 'STALE' end
if not rank_of(job.lane) then return 'NOPOLICY' end

local retry = ARGV[5] == '1' and tonumber(job.attempts) < tonumber(ARGV[8])
if job.kind ~= 'partial' and retry then
  requeue(id, job)
  return 'REQUEUED'
end
local keep = job.kind ~= 'partial' and ARGV[15] == '1'
give_up(id, job, redis_now(ARGV[1]), keep and 'dead' or 'dropped', ARGV[6], ARGV[7], not keep)
return 'DEAD'
