-- A job's end within its session. Needs the locals: open_partial, session_jobs_prefix.
local function leave_session(id, session)
  redis.call('SREM', session_jobs_prefix .. session, id)
  if redis.call('HGET', open_partial, session) == id then redis.call('HDEL', open_partial, session) end
end
