-- sweep: requeue or bury jobs whose lease ran out, drop partials and bury others that waited too long.
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
--  10 dead                 zset    id -> time of death, ms
--  11 counts               hash    KIND:OUTCOME -> jobs
-- ARGV
--   1 now_ms               int     Redis time in ms; 0 asks Redis
--   2 batch                int     most jobs to settle of those leased, and of those waiting
--   3 max_attempts         int     claims of one job
--   4 stale_partial_ms     int     ms that a partial may wait
--   5 max_wait_ms          int     ms that any other job may wait
--   6 front_prefix         string  + front: channel of a front end
--   7 events_ttl_ms        int     ms of life of the event stream
--   8 max_events           int     events kept for a session
--   9 job_ttl_ms           int     ms of life of the hashes
--  10 dead_ttl_ms          int     ms that a dead job is kept
--  11 max_dead             int     dead jobs kept
-- RETURNS {code, requeued, dead, partials dropped, jobs waiting, jobs leased, 1 when it stopped at the batch}
--   OK
--   NOPOLICY   Redis holds no ranks: set the policy, then try again
local heads, lane_prefix, wake, job_prefix, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local open_partial, session_prefix, session_jobs_prefix, events_prefix = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local dead, counts, batch, front_prefix = KEYS[10], KEYS[11], tonumber(ARGV[2]), ARGV[6]
local events_ttl_ms, max_events, job_ttl_ms = ARGV[7], ARGV[8], ARGV[9]
local dead_ttl_ms, max_dead = tonumber(ARGV[10]), tonumber(ARGV[11])
-- @include now wake lanes jobs leave forget deliver give_up requeue
if not index then return {'NOPOLICY'} end
local waiting = count_jobs(index)
if waiting == 0 and redis.call('ZCARD', leases) == 0 then return {'OK', 0, 0, 0, 0, 0, 0} end
local now = redis_now(ARGV[1])
redis.call('ZREMRANGEBYSCORE', dead, '-inf', now - dead_ttl_ms) -- first what takes no memory: see scripts.guarded
-- A session that is gone may leave a partial whose hash expired while nobody swept: a few are looked at in each sweep.
local some = redis.call('HRANDFIELD', open_partial, 10, 'WITHVALUES')
for at = 1, #some, 2 do
  if redis.call('EXISTS', job_prefix .. some[at + 1]) == 0 then redis.call('HDEL', open_partial, some[at]) end
end
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, batch)
local done = {requeued = 0, dead = 0, dropped = 0}

for _, id in ipairs(expired) do
  local job = read(id)
  if not job or job.state ~= 'leased' then
    redis.call('ZREM', leases, id)
  elseif job.kind == 'partial' then
    give_up(id, job, now, 'dropped', 'decode_failed', 'its worker was lost')
    done.dropped = done.dropped + 1
  elseif tonumber(job.attempts) < tonumber(ARGV[3]) then
    requeue(id, job)
    done.requeued = done.requeued + 1
  else
    give_up(id, job, now, 'dead', 'decode_failed', 'its worker was lost on each of ' .. job.attempts .. ' attempts')
    done.dead = done.dead + 1
  end
end
for lane in string.gmatch(string.sub(index, 56 * lanes + 1), '%S+') do
  local position, head_start, max_age = rank_of(lane)
  local bound = string.find(lane, '^partial:') and ARGV[4] or ARGV[5]
  local oldest, room = now - bound - head_start, batch - done.dead - done.dropped
  local late = redis.call('ZRANGEBYSCORE', lane_prefix .. lane, '-inf', oldest, 'LIMIT', 0, math.max(0, room))
  for _, id in ipairs(late) do
    local job = read(id)
    redis.call('ZREM', lane_prefix .. lane, id)
    local partial = job and job.kind == 'partial'
    if job then give_up(id, job, now, partial and 'stale' or 'dead', 'timeout', 'it waited over ' .. bound .. ' ms') end
    if partial then done.dropped = done.dropped + 1 else done.dead = done.dead + 1 end
  end
  refresh_head(lane, position, head_start, max_age)
end
waiting = count_jobs(redis.call('GET', heads))
if waiting > 0 then arm() end
local more = done.requeued + done.dead + done.dropped >= batch and 1 or 0
return {'OK', done.requeued, done.dead, done.dropped, waiting, redis.call('ZCARD', leases), more}
