-- claim: lease up to max_jobs jobs of the lane whose head is most urgent. O(lanes), however many jobs wait.
-- KEYS
--   1 policy               hash    ranks and layout, packed for this script
--   2 heads                string  index of the lanes' heads
--   3 lane_prefix          prefix  + lane: zset of waiting jobs
--   4 wake                 list    tokens for blocked workers
--   5 job_prefix           prefix  + id: hash of a job
--   6 leases               zset    id -> lease expiry, ms
--   7 claim_prefix         prefix  + worker: its last nonce and what it got
--   8 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 worker               string  who claims
--   3 nonce                string  new for each claim, the same when its reply was lost
--   4 max_jobs             int     most jobs to lease
--   5 lease_ms             int     ms until the lease runs out
--   6 lanes                strings only these lanes (KIND:WINDOW, ...); none given: every lane
-- RETURNS {code, job hash as flat array, ...}
--   JOBS       leased to this worker; attempts and generation are counted up
--   NONE       nothing waits
--   NOPOLICY   jobs wait, but Redis holds no ranks: set the policy, then try again
local policy, heads, lane_prefix, wake, job_prefix = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local claim_key, worker, nonce = KEYS[7] .. ARGV[2], ARGV[2], ARGV[3]
-- @include now lanes most_urgent
local claimed = {'JOBS'}

local memory = redis.call('GET', claim_key)
if memory and string.match(memory, '^%S+') == nonce then
  for id, generation in string.gmatch(memory, ' (%S+) (%S+)') do
    local job = redis.call('HMGET', job_prefix .. id, 'state', 'worker', 'generation')
    if job[1] == 'leased' and job[2] == worker and job[3] == generation then
      claimed[#claimed + 1] = redis.call('HGETALL', job_prefix .. id)
    end
  end
  return claimed[2] and claimed or {'NONE'}
end

local index = redis.call('GET', heads)
if not index then return {'NONE'} end
local ranked = redis.call('HMGET', policy, 'ranks', 'layout')
if not ranked[1] then return {'NOPOLICY'} end
local wanted
for at = 6, #ARGV do wanted = wanted or {}; wanted[ARGV[at]] = true end
local now = redis_now(ARGV[1])
local position, lane, total = most_urgent(index, ranked[1], ranked[2], now, wanted)
if not position then return {'NONE'} end

local popped = redis.call('ZPOPMIN', lane_prefix .. lane, ARGV[4])
refresh_head(lane, position)
local expiry, lease, got = now + ARGV[5], {}, nonce
for at = 1, #popped, 2 do
  local id, key = popped[at], job_prefix .. popped[at]
  local before = redis.call('HMGET', key, 'attempts', 'generation')
  if before[1] then
    local generation = before[2] + 1
    redis.call('HSET', key, 'state', 'leased', 'worker', worker, 'attempts', before[1] + 1, 'generation', generation,
      'claimed_ms', now, 'lease_until_ms', expiry)
    claimed[#claimed + 1] = redis.call('HGETALL', key)
    lease[#lease + 1] = expiry
    lease[#lease + 1] = id
    got = got .. ' ' .. id .. ' ' .. generation
  else
    redis.call('HINCRBY', KEYS[8], string.match(lane, '^%a+') .. ':dropped', 1)
  end
end
if total > #popped / 2 then arm() else redis.call('DEL', wake) end
if not claimed[2] then return {'NONE'} end
redis.call('ZADD', KEYS[6], unpack(lease))
redis.call('SET', claim_key, got, 'PX', ARGV[5])
return claimed
