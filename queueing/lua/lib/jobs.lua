-- Reading a job's hash. Needs the local: job_prefix.
local function read(id)
  local flat = redis.call('HGETALL', job_prefix .. id)
  if #flat == 0 then return nil end
  local job = {}
  for at = 1, #flat, 2 do job[flat[at]] = flat[at + 1] end
  return job
end
