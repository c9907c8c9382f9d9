-- read: a range of a session's audio.
-- KEYS
--   1 audio      string  the session's PCM16 from the position `base` on
--   2 meta       hash    the session's description, with base
-- ARGV
--   1 start      int     first byte, counted from the start of the stream
--   2 stop       int     the byte behind the last
-- RETURNS {code, the bytes that are held of that range}
--   OK    from start on; fewer than asked for where the audio ends before
--   LOST  what lies at start is forgotten
local audio, meta = KEYS[1], KEYS[2]
local start, stop = tonumber(ARGV[1]), tonumber(ARGV[2])
local base = tonumber(redis.call('HGET', meta, 'base'))
if not base or start < base then return {'LOST', ''} end
return {'OK', redis.call('GETRANGE', audio, start - base, stop - base - 1)}
