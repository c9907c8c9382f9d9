-- A leased job as claim returns it: these fields of its hash, then what the claim knows of it itself; the order is
-- that of queueing.records.LEASED_VALUES. enqueue writes these fields first, as Redis searches small hashes one by one.
local LEASED_FIELDS = {'generation', 'attempts', 'session', 'segment', 'start_byte', 'end_byte', 'audio_s', 'speech_s',
  'front', 'options', 'cost_ms'}

local function leased(job, id, lane, arrival, claimed, expiry)
  job[12], job[13], job[14], job[15], job[16] = id, lane, arrival, claimed, expiry
  return job
end
