-- adopt: a session goes on at another front end. What becomes of its jobs is told there from now on.
-- KEYS
--   1 job_prefix           prefix  + id: hash of a job
--   2 session_jobs_prefix  prefix  + session: set of its ids
-- ARGV
--   1 session              string  the session
--   2 front                string  its front end from now on
-- RETURNS {code, jobs that wait or run}
--   OK
redis.call('SREM', KEYS[2] .. ARGV[1], '') -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
local adopted = 0
for _, id in ipairs(redis.call('SMEMBERS', KEYS[2] .. ARGV[1])) do
  local key = KEYS[1] .. id
  local state = redis.call('HGET', key, 'state')
  if state == 'queued' or state == 'leased' then
    redis.call('HSET', key, 'front', ARGV[2])
    adopted = adopted + 1
  end
end
return {'OK', adopted}
