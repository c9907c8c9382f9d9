-- Cancelling one job. Needs lanes.lua, leave.lua and the locals: job_prefix, leases, tombstone_ms.
-- A queued job is gone at once; a leased one stays as 'cancelled' until its worker reports or the tombstone expires.
-- Returns the state that the job was in when it was cancelled, else false.
local function cancel(id, session)
  local job = redis.call('HMGET', job_prefix .. id, 'state', 'lane')
  if job[1] == 'queued' then
    take(job[2], id)
    redis.call('DEL', job_prefix .. id)
  elseif job[1] == 'leased' then
    redis.call('ZREM', leases, id)
    redis.call('HSET', job_prefix .. id, 'state', 'cancelled')
    redis.call('PEXPIRE', job_prefix .. id, tombstone_ms)
  else
    return false
  end
  leave_session(id, session)
  return job[1]
end
