-- claim: lease up to max_jobs jobs of the lane whose head is most urgent. O(lanes), however many jobs wait.
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
--   4 max_jobs             int     most jobs to lease
--   5 lease_ms             int     ms until the lease runs out
--   6 lanes                strings only these lanes (KIND:WINDOW, ...); none given: every lane
-- RETURNS {code, {fields of a job as in lib/leased.lua}, ...}
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
for at = 6, #ARGV do wanted = wanted or {}; wanted[ARGV[at]] = true end
local now, lanes = redis_now(ARGV[1]), #index / 68
local position, lane, depth, total = most_urgent(index, lanes, now, wanted)
if not position then return {'NONE'} end

local lane_key = lane_prefix .. lane
local popped = redis.call('ZPOPMIN', lane_key, ARGV[4])
local taken = #popped / 2
local next_score = tonumber(redis.call('ZRANGE', lane_key, 0, 0, 'WITHSCORES')[2])
local head_start, max_age = struct.unpack('<dd', index, 40 * lanes + 16 * position - 15)
local left = next_score and math.max(1, depth - taken) or 0
next_score = next_score or 0
redis.call('SETRANGE', heads, 40 * (position - 1),
  struct.pack('<ddd', left, next_score, math.floor(next_score + head_start + 0.5) + max_age))

-- Whole numbers go to Redis as '%d': it would format a number of Lua as a double, which takes five times as long.
local expiry, lease, got = now + lease_ms, {}, nonce
local expiry_text, now_text = string.format('%d', expiry), string.format('%d', now)
for at = 1, 2 * taken, 2 do
  local id, key = popped[at], job_prefix .. popped[at]
  local job = redis.call('HMGET', key, unpack(LEASED_FIELDS))
  if job[1] then
    job[1], job[2] = string.format('%d', job[1] + 1), string.format('%d', job[2] + 1)
    redis.call('HSET', key, 'generation', job[1], 'attempts', job[2], 'state', 'leased', 'worker', worker,
      'claimed_ms', now_text)
    local arrival = math.floor(popped[at + 1] + head_start + 0.5)
    claimed[#claimed + 1] = leased(job, id, lane, arrival, now, expiry)
    lease[#lease + 1] = expiry_text
    lease[#lease + 1] = id
    got = got .. ' ' .. id .. ' ' .. job[1]
  else
    redis.call('HINCRBY', KEYS[7], string.match(lane, '^%a+') .. ':dropped', 1)
  end
end
if total > taken then arm() else redis.call('DEL', wake) end
if not claimed[2] then return {'NONE'} end
redis.call('ZADD', KEYS[5], unpack(lease))
redis.call('SET', claim_key, got, 'PX', lease_ms)
return claimed
