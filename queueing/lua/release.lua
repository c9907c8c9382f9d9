-- release: give leased jobs back unharmed; they keep their age, and the attempt is not counted.
-- KEYS
--   1 heads                string  index of the lanes' heads
--   2 lane_prefix          prefix  + lane: zset of waiting jobs
--   3 wake                 list    tokens for blocked workers
--   4 job_prefix           prefix  + id: hash of a job
--   5 leases               zset    id -> lease expiry, ms
--   6 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 job_ttl_ms           int     ms of life of the hashes
--   2 held                 pairs   id, generation, ...
-- RETURNS {code, jobs given back}
--   OK         those that this worker no longer held are not counted
--   NOPOLICY   Redis holds no ranks: set the policy, then try again
local heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local counts, job_ttl_ms = KEYS[6], ARGV[1]
-- @include wake lanes jobs requeue
if not index then return {'NOPOLICY', 0} end
local given_back = 0
for at = 2, #ARGV, 2 do
  local id, job = ARGV[at], read(ARGV[at])
  if job and job.generation == ARGV[at + 1] and job.state == 'cancelled' then
    redis.call('DEL', job_prefix .. id)
  elseif job and job.generation == ARGV[at + 1] and job.state == 'leased' then
    requeue(id, job)
    redis.call('HSET', job_prefix .. id, 'attempts', job.attempts - 1)
    given_back = given_back + 1
  end
end
return {'OK', given_back}
