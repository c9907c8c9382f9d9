-- A job's end without a result, told to its session. Needs leave.lua, deliver.lua and the locals: job_prefix, leases,
-- session_prefix, dead, counts, job_ttl_ms, dead_ttl_ms, max_dead. `job` is its hash as a table, no longer in a lane.
-- With `forget` its hash stays for repeated reports only, as a done job's, and no operator finds it among the dead.
local function give_up(id, job, now, outcome, code, message, forget)
  local key = job_prefix .. id
  redis.call('ZREM', leases, id)
  if job.kind == 'partial' or not forget then leave_session(id, job.session) end
  local failure = '{"code":' .. cjson.encode(code) .. ',"message":' .. cjson.encode(message) .. '}'
  deliver(id, job, now, 'dead', 0, 'null', failure)
  redis.call('HINCRBY', counts, job.kind .. ':' .. outcome, 1)
  if job.kind == 'partial' then
    redis.call('DEL', key)
    redis.call('HSET', session_prefix .. job.session, 'last_partial', id .. ' ' .. job.generation .. ' dead')
    redis.call('PEXPIRE', session_prefix .. job.session, job_ttl_ms)
    return
  end
  redis.call('HSET', key, 'state', 'dead', 'error_code', code, 'error_message', message, 'died_ms', now)
  if forget then
    redis.call('PEXPIRE', key, job_ttl_ms)
    return
  end
  redis.call('PEXPIRE', key, dead_ttl_ms)
  redis.call('ZREMRANGEBYSCORE', dead, '-inf', now - dead_ttl_ms)
  redis.call('ZADD', dead, now, id)
  if redis.call('ZCARD', dead) > max_dead then
    redis.call('DEL', job_prefix .. redis.call('ZPOPMIN', dead)[1])
  end
end
