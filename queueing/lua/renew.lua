-- renew: extend leases.
-- KEYS
--   1 job_prefix           prefix  + id: hash of a job
--   2 leases               zset    id -> lease expiry, ms
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 lease_ms             int     ms from now until the lease runs out
--   3 job_ttl_ms           int     ms of life of the hashes
--   4 held                 pairs   id, generation, ...
-- RETURNS {code, place in `held` from 1 of each lease that is lost, or the place below 0 when its job was cancelled, ...}
--   OK         all others are extended
local job_prefix, leases = KEYS[1], KEYS[2]
-- @include now
local lost = {'OK'}
local expiry = redis_now(ARGV[1]) + ARGV[2]
for at = 4, #ARGV, 2 do
  local key = job_prefix .. ARGV[at]
  local job = redis.call('HMGET', key, 'state', 'generation')
  if job[1] == 'leased' and job[2] == ARGV[at + 1] then
    redis.call('PEXPIRE', key, ARGV[3]) -- takes no memory, so it comes first: see queueing.scripts.guarded
    redis.call('ZADD', leases, expiry, ARGV[at])
  else
    local cancelled = job[1] == 'cancelled' and job[2] == ARGV[at + 1]
    lost[#lost + 1] = (at - 2) / 2 * (cancelled and -1 or 1)
  end
end
return lost
