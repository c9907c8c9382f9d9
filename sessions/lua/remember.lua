-- remember: note fields of a session, forget others, and forget its audio before a position.
-- KEYS
--   1 audio      string  the session's PCM16 from the position `base` on
--   2 meta       hash    the session's description, with base and epoch
-- ARGV
--   1 before     int     in bytes from the start of the stream; what lies there and later is kept
--   2 ttl_ms     int     ms of life from now
--   3 epoch      int     which connection of the session writes
--   4 gone       int     how many names come next
--   5 rest       strings names of fields to be forgotten, then names and values of those to be noted
-- RETURNS {code, bytes of audio held afterwards}
--   OK     also where nothing was held
--   TAKEN  a newer connection has the session; nothing changed
local audio, meta = KEYS[1], KEYS[2]
local before, gone = tonumber(ARGV[1]), tonumber(ARGV[4])
local known, held = redis.call('HMGET', meta, 'base', 'epoch'), redis.call('STRLEN', audio)
local base = tonumber(known[1])
if (tonumber(known[2]) or 0) > tonumber(ARGV[3]) then return {'TAKEN', held} end
-- A write that takes no memory, so that a full Redis runs the rest (see queueing.scripts.guarded): not for a new session.
if redis.call('EXISTS', meta) == 1 then redis.call('PEXPIRE', meta, ARGV[2]) end
if gone > 0 then redis.call('HDEL', meta, unpack(ARGV, 5, 4 + gone)) end
if #ARGV > 4 + gone then redis.call('HSET', meta, unpack(ARGV, 5 + gone)) end
if base and before > base then
  local rest = redis.call('GETRANGE', audio, before - base, -1)
  if rest == '' then
    before = math.min(before, base + held)
    redis.call('DEL', audio)
  else
    redis.call('SET', audio, rest, 'PX', ARGV[2])
  end
  redis.call('HSET', meta, 'base', before)
  held = #rest
end
redis.call('PEXPIRE', meta, ARGV[2])
return {'OK', held}
