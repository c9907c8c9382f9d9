-- forget: a session is over; its audio and description go.
-- KEYS
--   1 audio      string  the session's PCM16
--   2 meta       hash    the session's description, with epoch
-- ARGV
--   1 epoch      int     which connection of the session it was; -1: whichever
-- RETURNS {code, keys that went}
--   OK     nothing of it is held any more
--   TAKEN  a newer connection has the session; nothing changed
local epoch = tonumber(ARGV[1])
if epoch >= 0 and (tonumber(redis.call('HGET', KEYS[2], 'epoch')) or 0) > epoch then return {'TAKEN', 0} end
return {'OK', redis.call('UNLINK', KEYS[1], KEYS[2])}
