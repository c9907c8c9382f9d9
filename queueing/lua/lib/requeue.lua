-- A leased job waits again, as old as it is. Needs lanes.lua and the locals: job_prefix, leases, counts, job_ttl_ms.
local function requeue(id, job)
  redis.call('ZREM', leases, id)
  redis.call('HSET', job_prefix .. id, 'state', 'queued')
  redis.call('PEXPIRE', job_prefix .. id, job_ttl_ms)
  put(job.lane, id, tonumber(job.arrival_ms))
  redis.call('HINCRBY', counts, job.kind .. ':requeued', 1)
end
