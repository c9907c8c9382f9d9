-- own: count a stream among those of its owners (a client's address, an API key), each of which may have so many.
-- KEYS
--   1 owner_prefix  prefix  + owner: zset of its streams, session -> Redis ms at which it is not counted any more
--   2 tries_prefix  prefix  + owner: int, streams it asked for in the minute since the first of them
-- ARGV
--   1 now_ms        int     Redis time in ms; 0 asks Redis
--   2 session       string
--   3 ttl_ms        int     ms that the stream counts unless it is renewed
--   4 back          int     1: for a stream that is counted already; it must be possible in a full Redis too
--   5 owners        triples owner, streams it may have (0: any number), streams it may ask for in a minute (0: any), ...
-- RETURNS {code, place of the owner whose limit is reached, from 1; 0 for none}
--   OK    the stream is counted for each owner (again: once)
--   MANY  this owner has as many streams as it may; nothing is counted
--   FAST  this owner asks too often; nothing is counted but that it asked
-- @include now
local session, ttl_ms = ARGV[2], tonumber(ARGV[3])
local now = redis_now(ARGV[1])
if ARGV[4] == '1' then -- takes no memory, so that a full Redis runs the rest: see queueing.scripts.guarded
  redis.call('ZREMRANGEBYSCORE', KEYS[1] .. ARGV[5], '-inf', now)
end
for at = 5, #ARGV, 3 do
  local most = tonumber(ARGV[at + 2])
  if most > 0 then
    local tries = KEYS[2] .. ARGV[at]
    local made = redis.call('INCR', tries)
    if made == 1 then redis.call('PEXPIRE', tries, 60000) end
    if made > most then return {'FAST', (at - 2) / 3} end
  end
end
for at = 5, #ARGV, 3 do
  local key, most = KEYS[1] .. ARGV[at], tonumber(ARGV[at + 1])
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  local counted = redis.call('ZSCORE', key, session)
  if most > 0 and not counted and redis.call('ZCARD', key) >= most then return {'MANY', (at - 2) / 3} end
end
for at = 5, #ARGV, 3 do
  local key = KEYS[1] .. ARGV[at]
  redis.call('ZADD', key, now + ttl_ms, session)
  redis.call('PEXPIRE', key, ttl_ms)
end
return {'OK', 0}
