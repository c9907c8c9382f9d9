-- Lanes and the index of their heads. Needs the locals: policy, heads, lane_prefix, wake.
-- `heads` holds 16 bytes a lane, in the policy's lane order: depth and score of the oldest job, as doubles.
-- It saves a claim from asking every lane; doubles in binary lose nothing, as their text would.
local WAKE_CAP = 64

local function rank_of(lane)
  local text = redis.call('HGET', policy, lane)
  if not text then return nil end
  local position, head_start = string.match(text, '^(%S+) %S+ (%S+)')
  return tonumber(position), tonumber(head_start)
end

local function refresh_head(lane, position)
  local key = lane_prefix .. lane
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  local packed = struct.pack('<dd', redis.call('ZCARD', key), tonumber(head[2]) or 0)
  redis.call('SETRANGE', heads, (position - 1) * 16, packed)
end

local function jobs_waiting()
  local index = redis.call('GET', heads)
  if not index then return 0 end
  local values = {struct.unpack('<' .. string.rep('d', #index / 8), index)}
  local total = 0
  for at = 1, #index / 8, 2 do total = total + values[at] end
  return total
end

-- A token wakes one blocked worker; that worker's claim passes the word on while work remains.
local function arm()
  if redis.call('LLEN', wake) < WAKE_CAP then redis.call('LPUSH', wake, 1) end
end

local function put(lane, id, arrival)
  local position, head_start = rank_of(lane)
  redis.call('ZADD', lane_prefix .. lane, arrival - head_start, id)
  refresh_head(lane, position)
  arm()
end

local function take(lane, id)
  if redis.call('ZREM', lane_prefix .. lane, id) == 0 then return end
  local position = rank_of(lane)
  if position then refresh_head(lane, position) end
end
