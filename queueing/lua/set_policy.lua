-- set_policy: install a policy's ranks and rescore every waiting job, all at once.
-- KEYS
--   1 policy               hash    name, version; lane -> its position and rank
--   2 heads                string  index of the lanes' heads
--   3 lane_prefix          prefix  + lane: zset of waiting jobs
--   4 wake                 list    tokens for blocked workers
--   5 job_prefix           prefix  + id: hash of a job
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 name                 string  of the policy
--   3 expected             string  version that must be the present one; 'none': no policy yet; 'any'
--   4 ranks                ranks   lane, tier, head start (ms), rate (per ms), greatest age (ms), ...; for every lane
-- RETURNS {code, version, jobs rescored}
--   OK         installed
--   CHANGED    the version is not the expected one: nothing was done
local policy, heads, lane_prefix, wake, job_prefix = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local CHUNK = 500
-- @include now wake lanes
local version = redis.call('HGET', policy, 'version') or 'none'
if ARGV[3] ~= 'any' and ARGV[3] ~= version then return {'CHANGED', tonumber(version) or 0, 0} end

local rescored = 0
local function rescore(lane, old_head_start, head_start)
  local key = lane_prefix .. lane
  local jobs = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for first = 1, #jobs, 2 * CHUNK do
    local moved = {}
    for at = first, math.min(first + 2 * CHUNK, #jobs + 1) - 1, 2 do
      -- The arrival is a whole millisecond: rounding recovers it exactly, so that no error adds up.
      local arrival = old_head_start and math.floor(jobs[at + 1] + old_head_start + 0.5)
        or redis.call('HGET', job_prefix .. jobs[at], 'arrival_ms') or jobs[at + 1]
      moved[#moved + 1] = arrival - head_start
      moved[#moved + 1] = jobs[at]
    end
    redis.call('ZADD', key, unpack(moved))
    rescored = rescored + #moved / 2
  end
end

local slots, spans, names = {}, {}, {}
for at = 4, #ARGV, 5 do
  local lane, position = ARGV[at], (at + 1) / 5
  local tier, head_start, rate, max_age = unpack(ARGV, at + 1, at + 4)
  local before = redis.call('HGET', policy, lane)
  local old_head_start = before and tonumber(string.match(before, '^%S+ %S+ (%S+)'))
  if old_head_start ~= tonumber(head_start) then rescore(lane, old_head_start, tonumber(head_start)) end
  redis.call('HSET', policy, lane, table.concat({position, tier, head_start, rate, max_age}, ' '))
  slots[position] = struct.pack('<ddddd', 0, 0, 0, tier, rate)
  spans[position] = struct.pack('<dd', head_start, max_age)
  names[position] = string.format('%-12s', lane)
end
index, lanes = table.concat(slots) .. table.concat(spans) .. table.concat(names), #slots
redis.call('SET', heads, index)
for at = 4, #ARGV, 5 do refresh_head(ARGV[at], rank_of(ARGV[at])) end
local installed = (tonumber(version) or 0) + 1
redis.call('HSET', policy, 'name', ARGV[2], 'version', installed, 'changed_ms', redis_now(ARGV[1]))
if count_jobs(redis.call('GET', heads)) > 0 then arm() end
return {'OK', installed, rescored}
