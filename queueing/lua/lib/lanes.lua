-- Lanes and the index of their heads. Needs wake.lua and the locals: heads, lane_prefix.
-- `heads` saves a claim from asking every lane. For n lanes, in the policy's order, it holds little-endian doubles
-- (binary, as text would cost digits or time) and then the names:
--   n times 40 bytes: depth, score of the head, ms when the head is overdue, tier, rate   (the first three change)
--   n times 16 bytes: head start in ms, greatest age in ms
--   n times 12 bytes: name, padded with blanks
-- Only set_policy creates it; where it is missing, scripts that need it answer NOPOLICY.
local index = redis.call('GET', heads)
local lanes = index and #index / 68 or 0

-- A lane's position, head start and greatest age; nil for one that the index lacks.
local function rank_of(lane)
  local at = index and string.find(index, lane .. ' ', 56 * lanes + 1, true)
  if not at then return nil end
  local position = (at - 56 * lanes + 11) / 12
  return position, struct.unpack('<dd', index, 40 * lanes + 16 * position - 15)
end

-- Arrivals are whole milliseconds: rounding undoes what subtracting the head start lost.
local function arrival_of(score, head_start) return math.floor(score + head_start + 0.5) end

local function write_head(position, depth, score, overdue)
  redis.call('SETRANGE', heads, 40 * (position - 1), struct.pack('<ddd', depth, score, overdue))
end

local function refresh_head(lane, position, head_start, max_age)
  local key = lane_prefix .. lane
  local score = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or 0
  write_head(position, redis.call('ZCARD', key), score, arrival_of(score, head_start) + max_age)
end

local function count_jobs(of)
  local values, total = {struct.unpack('<' .. string.rep('ddddd', lanes), of)}, 0
  for at = 1, 5 * lanes, 5 do total = total + values[at] end
  return total
end

local function put(lane, id, arrival)
  local position, head_start, max_age = rank_of(lane)
  -- A lane that the index lacks waits for a set_policy that knows it.
  if not position then return redis.call('ZADD', lane_prefix .. lane, arrival, id) end
  local score, place = arrival - head_start, 40 * (position - 1)
  redis.call('ZADD', lane_prefix .. lane, score, id)
  local depth, first, overdue = struct.unpack('<ddd', redis.call('GETRANGE', heads, place, place + 23))
  if depth == 0 or score < first then first, overdue = score, arrival + max_age end
  write_head(position, depth + 1, first, overdue)
  arm()
end

local function take(lane, id)
  if redis.call('ZREM', lane_prefix .. lane, id) == 0 then return end
  local position, head_start, max_age = rank_of(lane)
  if position then refresh_head(lane, position, head_start, max_age) end
end
