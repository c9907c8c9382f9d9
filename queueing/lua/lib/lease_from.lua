-- Leasing up to `most` of the oldest jobs of one lane; returns how many it took. Needs leased.lua and the locals: heads,
-- index, lanes, lane_prefix, job_prefix, counts, worker, wanted, now, expiry; fills the locals: claimed, leases, got.
-- A job that was claimed before and came back may be what ended its worker: it runs alone, or it would take its
-- companions along at each attempt.
-- Whole numbers go to Redis as '%d': it would format a number of Lua as a double, which takes five times as long.
local expiry_text, now_text = string.format('%d', expiry), string.format('%d', now)

local alone = false

local function lease_from(position, most)
  local lane = string.match(index, '^%S+', 56 * lanes + 12 * position - 11)
  local depth = struct.unpack('<d', index, 40 * position - 39)
  if depth == 0 or (wanted and not wanted[lane]) then return 0 end
  local lane_key = lane_prefix .. lane
  local head_start, max_age = struct.unpack('<dd', index, 40 * lanes + 16 * position - 15)
  local popped = redis.call('ZPOPMIN', lane_key, string.format('%d', most))
  local taken, back = #popped / 2, {}
  for at = 1, #popped, 2 do
    local id, key = popped[at], job_prefix .. popped[at]
    local job = redis.call('HMGET', key, unpack(LEASED_FIELDS))
    if not job[1] then
      redis.call('HINCRBY', counts, string.match(lane, '^%a+') .. ':dropped', 1)
    elseif claimed[2] and (alone or job[2] ~= '0') then
      back[#back + 1] = popped[at + 1]
      back[#back + 1] = id
    else
      alone = job[2] ~= '0'
      job[1], job[2] = string.format('%d', job[1] + 1), string.format('%d', job[2] + 1)
      redis.call('HSET', key, 'generation', job[1], 'attempts', job[2], 'state', 'leased', 'worker', worker,
        'claimed_ms', now_text)
      local arrival = math.floor(popped[at + 1] + head_start + 0.5)
      claimed[#claimed + 1] = leased(job, id, lane, arrival, now, expiry)
      leases[#leases + 1] = expiry_text
      leases[#leases + 1] = id
      got = got .. ' ' .. id .. ' ' .. job[1]
    end
  end
  if back[1] then
    redis.call('ZADD', lane_key, unpack(back))
    taken = taken - #back / 2
  end
  local next_score = tonumber(redis.call('ZRANGE', lane_key, 0, 0, 'WITHSCORES')[2])
  local left = next_score and math.max(1, depth - taken) or 0
  next_score = next_score or 0
  redis.call('SETRANGE', heads, 40 * (position - 1),
    struct.pack('<ddd', left, next_score, math.floor(next_score + head_start + 0.5) + max_age))
  return taken
end
