-- trim: forget the audio of a session before a position.
-- KEYS
--   1 audio      string  the session's PCM16 from the position `base` on
--   2 meta       hash    the session's description, with base
-- ARGV
--   1 before     int     in bytes from the start of the stream; what lies there and later is kept
--   2 ttl_ms     int     ms of life from now
-- RETURNS {code, bytes held afterwards}
--   OK    also where nothing was held
local audio, meta = KEYS[1], KEYS[2]
local before = tonumber(ARGV[1])
local base, held = tonumber(redis.call('HGET', meta, 'base')), redis.call('STRLEN', audio)
if not base or before <= base then return {'OK', held} end
redis.call('PEXPIRE', meta, ARGV[2]) -- takes no memory, so it comes first: see queueing.scripts.guarded
local rest = redis.call('GETRANGE', audio, before - base, -1)
if rest == '' then
  before = math.min(before, base + held)
  redis.call('DEL', audio)
else
  redis.call('SET', audio, rest, 'PX', ARGV[2])
end
redis.call('HSET', meta, 'base', before)
return {'OK', #rest}
