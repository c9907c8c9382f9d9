-- enqueue: queue a job. A final or file first removes its session's partial; a partial extends the queued one.
-- KEYS
--   1 heads                string  index of the lanes' heads
--   2 lane_prefix          prefix  + lane: zset of waiting jobs
--   3 wake                 list    tokens for blocked workers
--   4 job_prefix           prefix  + id: hash of a job
--   5 leases               zset    leased ids
--   6 open_partial         hash    session -> its partial's id
--   7 session_prefix       prefix  + session: hash with last_final, last_partial, forgotten
--   8 session_jobs_prefix  prefix  + session: set of its ids
--   9 arrivals_prefix      prefix  + minute: hash lane -> jobs that came
--  10 costs                hash    lane -> learned cost, ms
--  11 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 id                   string  the job's id
--   3 session              string  its session
--   4 kind                 string  partial, final or file
--   5 segment              int     index of the final that this job is or leads up to
--   6 lane                 string  KIND:WINDOW
--   7 prior_cost_ms        float   ms, while no cost is learned
--   8 max_queued           int     jobs that may wait when this one comes
--   9 job_ttl_ms           int     ms of life of the hashes
--  10 tombstone_ms         int     ms that a cancelled job is remembered
--  11 fields               pairs   the other fields of the job's hash: name, value, ...
-- RETURNS {code, 1 when a queued partial was removed for this job}
--   QUEUED EXTENDED BUSY DUPLICATE OBSOLETE FULL   as queueing.job.EnqueueStatus
--   NOPOLICY   Redis holds no rank for this lane: set the policy, then try again
local heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local open_partial, session_jobs_prefix, counts = KEYS[6], KEYS[8], KEYS[11]
local id, session, kind, segment, lane = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local job_ttl_ms, tombstone_ms = ARGV[9], ARGV[10]
-- @include now wake lanes leave cancel
local function count(outcome) redis.call('HINCRBY', counts, outcome, 1) end
local job_key, session_key, set_key = job_prefix .. id, KEYS[7] .. session, session_jobs_prefix .. session
local past = redis.call('HMGET', session_key, 'last_final', 'last_partial', 'forgotten')
local known = redis.call('EXISTS', job_key) == 1 or (past[2] and string.match(past[2], '^%S+') == id)
if known or (kind ~= 'partial' and past[3] and segment <= tonumber(past[3])) then return {'DUPLICATE', 0} end
if not rank_of(lane) then return {'NOPOLICY', 0} end
local open, superseded = redis.call('HGET', open_partial, session), 0
if kind == 'partial' then
  if past[1] and segment <= tonumber(past[1]) then return {'OBSOLETE', 0} end
  local held = open and redis.call('HMGET', job_prefix .. open, 'state', 'lane', 'arrival_ms') or {}
  if held[1] == 'leased' then return {'BUSY', 0} end
  if held[1] == 'queued' then
    redis.call('HSET', job_prefix .. open, 'segment', segment, 'lane', lane,
      'cost_ms', redis.call('HGET', KEYS[10], lane) or ARGV[7], unpack(ARGV, 11))
    if held[2] ~= lane then
      take(held[2], open)
      put(lane, open, tonumber(held[3]))
    end
    count('partial:extended')
    return {'EXTENDED', 0}
  end
end
if count_jobs(index) >= tonumber(ARGV[8]) then
  count(kind .. ':refused')
  return {'FULL', 0}
end
if kind ~= 'partial' then
  local was = open and cancel(open, session)
  if was then count(was == 'queued' and 'partial:superseded' or 'partial:cancelled') end
  if was == 'queued' then superseded = 1 end
  if not past[1] or segment > tonumber(past[1]) then redis.call('HSET', session_key, 'last_final', segment) end
else
  redis.call('HSET', open_partial, session, id)
end
local now = redis_now(ARGV[1])
redis.call('HSET', job_key, 'generation', 0, 'attempts', 0, 'session', session, 'segment', segment, unpack(ARGV, 11))
redis.call('HSET', job_key, 'cost_ms', redis.call('HGET', KEYS[10], lane) or ARGV[7], 'state', 'queued',
  'id', id, 'kind', kind, 'lane', lane, 'arrival_ms', now)
redis.call('SADD', set_key, id)
for _, key in ipairs({job_key, session_key, set_key}) do redis.call('PEXPIRE', key, job_ttl_ms) end
put(lane, id, now)
local arrivals = KEYS[9] .. math.floor(now / 60000)
redis.call('HINCRBY', arrivals, lane, 1)
redis.call('PEXPIRE', arrivals, 180000)
count(kind .. ':queued')
return {'QUEUED', superseded}
