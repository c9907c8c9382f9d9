-- Lanes and the index of their heads. Needs wake.lua and the locals: policy, heads, lane_prefix.
-- `heads` saves a claim from asking every lane. For n lanes, in the policy's order, it holds little-endian doubles
-- (binary, as text would cost digits or time) and then the names:
--   n times 40 bytes: depth, score of the head, ms when the head is overdue, tier, rate   (the first three change)
--   n times 16 bytes: head start in ms, greatest age in ms
--   n times 12 bytes: name, padded with blanks
-- Only set_policy creates it; where it is missing, scripts that need it answer NOPOLICY.

local function rank_of(lane)
  local text = redis.call('HGET', policy, lane)
  if not text then return nil end
  local position, head_start, max_age = string.match(text, '^(%S+) %S+ (%S+) %S+ (%S+)')
  return tonumber(position), tonumber(head_start), tonumber(max_age)
end

-- Arrivals are whole milliseconds: rounding undoes what subtracting the head start lost.
local function arrival_of(score, head_start) return math.floor(score + head_start + 0.5) end

local function refresh_head(lane, position, head_start, max_age)
  if redis.call('STRLEN', heads) == 0 then return end
  local key = lane_prefix .. lane
  local score = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or 0
  local overdue = arrival_of(score, head_start) + max_age
  local packed = struct.pack('<ddd', redis.call('ZCARD', key), score, overdue)
  redis.call('SETRANGE', heads, (position - 1) * 40, packed)
end

-- The number of jobs in all lanes; nil where the index is missing.
local function jobs_waiting()
  local index = redis.call('GET', heads)
  if not index then return nil end
  local lanes, total = #index / 68, 0
  local values = {struct.unpack('<' .. string.rep('ddddd', lanes), index)}
  for at = 1, 5 * lanes, 5 do total = total + values[at] end
  return total
end

local function put(lane, id, arrival)
  local position, head_start, max_age = rank_of(lane)
  redis.call('ZADD', lane_prefix .. lane, arrival - head_start, id)
  refresh_head(lane, position, head_start, max_age)
  arm()
end

local function take(lane, id)
  if redis.call('ZREM', lane_prefix .. lane, id) == 0 then return end
  local position, head_start, max_age = rank_of(lane)
  if position then refresh_head(lane, position, head_start, max_age) end
end

local function move(id, from, to, arrival)
  take(from, id)
  put(to, id, arrival)
end
