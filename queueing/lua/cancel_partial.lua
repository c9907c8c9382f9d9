-- cancel_partial: remove a session's queued partial, or make the leased one obsolete.
-- KEYS
--   1 heads                string  index of the lanes' heads
--   2 lane_prefix          prefix  + lane: zset of waiting jobs
--   3 wake                 list    tokens for blocked workers
--   4 job_prefix           prefix  + id: hash of a job
--   5 leases               zset    id -> lease expiry, ms
--   6 open_partial         hash    session -> its partial's id
--   7 session_jobs_prefix  prefix  + session: set of its ids
--   8 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 session              string  the session
--   2 tombstone_ms         int     ms that a cancelled job is remembered
-- RETURNS code
--   QUEUED     it was queued and is gone
--   LEASED     it was leased; its completion will be CANCELLED
--   NONE       the session had no partial
local heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local open_partial, session_jobs_prefix, session, tombstone_ms = KEYS[6], KEYS[7], ARGV[1], ARGV[2]
-- @include wake lanes leave cancel
local open = redis.call('HGET', open_partial, session)
local was = open and cancel(open, session)
if not was then return 'NONE' end
redis.call('HINCRBY', KEYS[8], 'partial:cancelled', 1)
return string.upper(was)
