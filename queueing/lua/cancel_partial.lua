-- cancel_partial: remove a session's queued partial, or make the leased one obsolete.
-- KEYS
--   1 policy               hash    the rank of each lane
--   2 heads                string  index of the lanes' heads
--   3 lane_prefix          prefix  + lane: zset of waiting jobs
--   4 wake                 list    tokens for blocked workers
--   5 job_prefix           prefix  + id: hash of a job
--   6 leases               zset    id -> lease expiry, ms
--   7 open_partial         hash    session -> its partial's id
--   8 session_jobs_prefix  prefix  + session: set of its ids
--   9 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 session              string  the session
--   2 tombstone_ms         int     ms that a cancelled job is remembered
-- RETURNS code
--   QUEUED     it was queued and is gone
--   LEASED     it was leased; its completion will be CANCELLED
--   NONE       the session had no partial
local policy, heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local open_partial, session_jobs_prefix, session, tombstone_ms = KEYS[7], KEYS[8], ARGV[1], ARGV[2]
-- @include wake lanes leave cancel
local open = redis.call('HGET', open_partial, session)
local was = open and cancel(open, session)
if not was then return 'NONE' end
redis.call('HINCRBY', KEYS[9], 'partial:cancelled', 1)
return string.upper(was)
