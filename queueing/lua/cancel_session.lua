-- cancel_session: a session is over. Its queued jobs go, leased ones become obsolete; its events are deleted, or kept.
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
--  10 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 session              string  the session
--   2 tombstone_ms         int     ms that a cancelled job is remembered
--   3 keep                 int     1: what came of its jobs before stays readable; 0: nothing of it stays
-- RETURNS {code, jobs that were queued or leased}
--   OK
local heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local open_partial, session_jobs_prefix, session, tombstone_ms = KEYS[6], KEYS[8], ARGV[1], ARGV[2]
-- @include wake lanes leave cancel
local cancelled = 0
for _, id in ipairs(redis.call('SMEMBERS', session_jobs_prefix .. session)) do
  local kind = redis.call('HGET', job_prefix .. id, 'kind')
  if cancel(id, session) then
    cancelled = cancelled + 1
    redis.call('HINCRBY', KEYS[10], kind .. ':cancelled', 1)
  else
    redis.call('DEL', job_prefix .. id)
  end
end
redis.call('HDEL', open_partial, session)
redis.call('DEL', session_jobs_prefix .. session)
if ARGV[3] == '0' then redis.call('DEL', KEYS[7] .. session, KEYS[9] .. session) end
return {'OK', cancelled}
