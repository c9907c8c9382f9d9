-- Bounding what one session holds, however long it lasts. Needs the locals: job_prefix, session_prefix,
-- session_jobs_prefix, job_ttl_ms. A finished job's hash is there for repeated reports and goes with its event; `forgotten`,
-- the highest segment that went, then answers a repeated enqueue. Jobs that wait, run or are left to the operator stay.
local FORGET_AT_ONCE = 10

local function forget_oldest(events, session, keep)
  local surplus = math.min(redis.call('XLEN', events) - keep, FORGET_AT_ONCE)
  if surplus <= 0 then return end
  local session_key, set_key = session_prefix .. session, session_jobs_prefix .. session
  local forgotten = tonumber(redis.call('HGET', session_key, 'forgotten')) or -1
  for _, entry in ipairs(redis.call('XRANGE', events, '-', '+', 'COUNT', surplus)) do
    local id, segment = string.match(entry[2][2], '"job":"([^"]*)","kind":"%a*","segment":(%d+)')
    local state = redis.call('HGET', job_prefix .. id, 'state')
    if (state == 'done' or state == 'dead') and redis.call('SREM', set_key, id) == 1 then
      redis.call('DEL', job_prefix .. id)
    end
    forgotten = math.max(forgotten, tonumber(segment))
    redis.call('XDEL', events, entry[1])
  end
  redis.call('HSET', session_key, 'forgotten', forgotten)
  redis.call('PEXPIRE', session_key, job_ttl_ms)
end
