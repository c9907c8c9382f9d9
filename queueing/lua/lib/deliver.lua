-- Telling a session's front end. Needs forget.lua and the locals: front_prefix, events_prefix, events_ttl_ms, max_events.
-- The JSON is that of queueing.job.Delivery. `result` and `failure` are JSON text; finals and files become
-- durable events, a partial is only published.
local DELIVERY = '{"session":%s,"job":%s,"kind":%s,"segment":%s,"outcome":"%s","start_byte":%s,"end_byte":%s,'
  .. '"audio_s":%s,"attempt":%s,"queue_ms":%d,"decode_ms":%d,"completed_ms":%d,"result":%s,"error":%s}'

local function deliver(id, job, now, outcome, decode_ms, result, failure)
  local quote = cjson.encode
  local queue_ms = (tonumber(job.claimed_ms) or now) - tonumber(job.arrival_ms)
  local body = string.format(DELIVERY, quote(job.session), quote(id), quote(job.kind), job.segment, outcome,
    job.start_byte, job.end_byte, job.audio_s, job.attempts, queue_ms, decode_ms, now, result, failure)
  local event = '-'
  if job.kind ~= 'partial' then
    local key = events_prefix .. job.session
    event = redis.call('XADD', key, '*', 'body', body)
    redis.call('PEXPIRE', key, events_ttl_ms)
    forget_oldest(key, job.session, max_events)
  end
  redis.call('PUBLISH', front_prefix .. job.front, event .. ' ' .. body)
end
