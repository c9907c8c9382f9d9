-- A leased job as claim returns it: the values of these fields, in this order (queueing.records.LEASED_FIELDS).
local LEASED_FIELDS = {'id', 'generation', 'attempts', 'claimed_ms', 'lease_until_ms', 'session', 'kind', 'segment',
  'start_byte', 'end_byte', 'audio_s', 'front', 'options', 'lane', 'arrival_ms', 'cost_ms'}
