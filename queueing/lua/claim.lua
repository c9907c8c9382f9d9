-- claim: lease a batch that begins with the most urgent head: jobs of its lane in order, and where the worker says so
-- then of the next smaller windows of its kind; one that was tried before runs alone. O(lanes), however many jobs wait.
-- KEYS
--   1 heads                string  index of the lanes' heads and ranks
--   2 lane_prefix          prefix  + lane: zset of waiting jobs
--   3 wake                 list    tokens for blocked workers
--   4 job_prefix           prefix  + id: hash of a job
--   5 leases               zset    id -> lease expiry, ms
--   6 claim_prefix         prefix  + worker: its last nonce and what it got
--   7 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 worker               string  who claims
--   3 nonce                string  new for each claim, the same when its reply was lost
--   4 max_jobs             int     most jobs to lease, whatever the lane
--   5 lease_ms             int     ms until the lease runs out
--   6 batches              string  ' KIND:WINDOW MOST SMALLER ' ...: jobs of a batch, smaller windows that may join it
--   7 lanes                strings only these lanes (KIND:WINDOW, ...); none given: every lane
-- RETURNS {code, {fields of a job as in lib/leased.lua}, ...}   the head first
--   JOBS       leased to this worker; attempts and generation are counted up
--   NONE       nothing waits
--   NOPOLICY   Redis holds no ranks: set the policy, then try again
local heads, lane_prefix, wake, job_prefix, claim_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6] .. ARGV[2]
local worker, nonce, lease_ms = ARGV[2], ARGV[3], ARGV[5]
-- @include now wake most_urgent leased
local claimed = {'JOBS'}
local known = redis.call('MGET', claim_key, heads)
local memory, index = known[1], known[2]
if memory and string.match(memory, '^%S+') == nonce then
  for id, generation in string.gmatch(memory, ' (%S+) (%S+)') do
    local held = redis.call('HMGET', job_prefix .. id, 'state', 'generation', 'lane', 'arrival_ms', 'claimed_ms')
    if held[1] == 'leased' and held[2] == generation then
      local job = redis.call('HMGET', job_prefix .. id, unpack(LEASED_FIELDS))
      claimed[#claimed + 1] = leased(job, id, held[3], held[4], held[5], redis.call('ZSCORE', KEYS[5], id))
    end
  end
  return claimed[2] and claimed or {'NONE'}
end
if not index then return {'NOPOLICY'} end
local wanted
for at = 7, #ARGV do wanted = wanted or {}; wanted[ARGV[at]] = true end
local now, lanes = redis_now(ARGV[1]), #index / 68
local position, lane, total = most_urgent(index, lanes, now, wanted)
if not position then return {'NONE'} end

local counts, expiry, leases, got = KEYS[7], now + lease_ms, {}, nonce
-- @include lease_from
-- A plain search first: a pattern would be tried at every place of the text.
local own = string.find(ARGV[6], ' ' .. lane .. ' ', 1, true)
local most, smaller = string.match(ARGV[6], '^(%d+) (%d+)', own and own + #lane + 2 or #ARGV[6] + 1)
local room = math.min(tonumber(ARGV[4]), tonumber(most or ARGV[4]))
local kind, last = string.match(lane, '^%a+'), math.max(1, position - (smaller or 0))
local taken = lease_from(position, room)
for joining = position - 1, last, -1 do
  if taken >= room or string.match(index, '^%a+', 56 * lanes + 12 * joining - 11) ~= kind then break end
  taken = taken + lease_from(joining, room - taken)
end
if total > taken then arm() else redis.call('DEL', wake) end
if not claimed[2] then return {'NONE'} end
redis.call('ZADD', KEYS[5], unpack(leases))
redis.call('SET', claim_key, got, 'PX', lease_ms)
return claimed
