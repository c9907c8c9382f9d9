-- append: store PCM at an offset of a session's audio, once, and renew the session's expiry.
-- KEYS
--   1 audio      string  the session's PCM16
--   2 meta       hash    the session's description
-- ARGV
--   1 offset     int     bytes that are held already, as the writer knows it
--   2 data       bytes   whole samples, perhaps none
--   3 ttl_ms     int     ms of life from now
--   4 max_bytes  int     bytes that a session may hold
-- RETURNS {code, bytes held}
--   OK    the data is held; the same data at the same offset again changes nothing
--   LOST  fewer than offset bytes are held
--   FULL  it would be more than max_bytes; nothing changed
local audio, meta = KEYS[1], KEYS[2]
local offset, data, ttl_ms = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local held = redis.call('STRLEN', audio)
local wanted = offset + #data
if held < offset then return {'LOST', held} end
if wanted > tonumber(ARGV[4]) then return {'FULL', held} end
if held < wanted then held = redis.call('SETRANGE', audio, offset, data) end
redis.call('PEXPIRE', audio, ttl_ms)
redis.call('PEXPIRE', meta, ttl_ms)
return {'OK', held}
