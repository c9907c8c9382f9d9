-- append: store PCM at a position of a session's stream, once, note fields with it, and renew the session's expiry.
-- KEYS
--   1 audio      string  the session's PCM16 from the position `base` on
--   2 meta       hash    the session's description, with base and epoch
-- ARGV
--   1 offset     int     position of the data, in bytes from the start of the stream
--   2 follows    int     where the piece before it ended; what lies between was left out and reads as silence
--   3 keep_from  int     what lies before will not be read again
--   4 data       bytes   whole samples, perhaps none
--   5 ttl_ms     int     ms of life from now
--   6 max_bytes  int     bytes that a session may hold
--   7 epoch      int     which connection of the session writes
--   8 fields     pairs   names and values for meta, perhaps none
-- RETURNS {code, position up to which audio is held}
--   OK     the data is held; the same data at the same offset again changes nothing
--   LOST   what was stored before, and is needed yet, is not all there
--   FULL   it would be more than max_bytes; nothing changed
--   TAKEN  a newer connection has the session; nothing changed
local audio, meta = KEYS[1], KEYS[2]
local offset, keep_from, data, ttl_ms = tonumber(ARGV[1]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local known, held = redis.call('HMGET', meta, 'base', 'epoch'), redis.call('STRLEN', audio)
local base = tonumber(known[1])
if (tonumber(known[2]) or 0) > tonumber(ARGV[7]) then return {'TAKEN', (base or 0) + held} end
if not base and held > 0 then return {'LOST', 0} end
held = (base or 0) + held
if held < tonumber(ARGV[2]) and keep_from < offset then return {'LOST', held} end
local fresh = held < offset and keep_from >= held
if fresh then base, held = offset, offset end
base = base or 0
local wanted = offset + #data
if wanted - base > tonumber(ARGV[6]) then return {'FULL', held} end
if fresh then redis.call('DEL', audio) end
redis.call('HSET', meta, 'base', base, unpack(ARGV, 8))
if held < wanted then held = base + redis.call('SETRANGE', audio, offset - base, data) end
redis.call('PEXPIRE', audio, ttl_ms)
redis.call('PEXPIRE', meta, ttl_ms)
return {'OK', held}
