-- keep: go on counting live streams among those of their owners.
-- KEYS
--   1 owner_prefix  prefix  + owner: zset of its streams, session -> Redis ms at which it is not counted any more
-- ARGV
--   1 now_ms        int     Redis time in ms; 0 asks Redis
--   2 ttl_ms        int     ms that a stream counts unless it is renewed
--   3 streams       pairs   session, owner, ...
-- RETURNS {code, streams that each named owner has, in the order of the pairs, with blanks between}
--   OK
-- @include now
local ttl_ms = tonumber(ARGV[2])
local now = redis_now(ARGV[1])
local counts = {}
for at = 3, #ARGV, 2 do
  local key = KEYS[1] .. ARGV[at + 1]
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now) -- takes no memory, so it comes first: see queueing.scripts.guarded
  redis.call('ZADD', key, now + ttl_ms, ARGV[at])
  redis.call('PEXPIRE', key, ttl_ms)
end
for at = 3, #ARGV, 2 do counts[#counts + 1] = redis.call('ZCARD', KEYS[1] .. ARGV[at + 1]) end
return {'OK', table.concat(counts, ' ')}
