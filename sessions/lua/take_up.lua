-- take_up: a session's client is back on a new connection, which alone may write from now on.
-- KEYS
--   1 audio      string  the session's PCM16 from the position `base` on
--   2 meta       hash    the session's description, with base, epoch, label and the digests of its tokens
-- ARGV
--   1 token      string  digest of the token that the client has
--   2 fresh      string  digest of the token that it gets
--   3 label      string  whose key the client came with
--   4 front      string  the web process of the new connection
--   5 ttl_ms     int     ms of life from now
-- RETURNS {code, position up to which audio is held, names and values of meta as they were, with the new epoch}
--   OK       the connection has the session
--   REFUSED  there is no such session, or it is not this client's; nothing changed
local audio, meta, token = KEYS[1], KEYS[2], ARGV[1]
local known = redis.call('HMGET', meta, 'token', 'token_before', 'label', 'epoch', 'base')
local current = known[1]
if not current or current == '' or (known[3] or '') ~= ARGV[3] then return {'REFUSED', 0} end
if token ~= current and token ~= known[2] then return {'REFUSED', 0} end
-- The newest token was never used if the one before it is presented: that one stays valid until then.
local epoch = string.format('%d', (tonumber(known[4]) or 0) + 1)
redis.call('PEXPIRE', meta, ARGV[5]) -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
redis.call('HSET', meta, 'token', ARGV[2], 'token_before', token, 'epoch', epoch)
local fields = redis.call('HGETALL', meta)
redis.call('HSET', meta, 'front', ARGV[4])
redis.call('PEXPIRE', audio, ARGV[5])
return {'OK', (tonumber(known[5]) or 0) + redis.call('STRLEN', audio), fields}
