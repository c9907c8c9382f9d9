-- The lanes of the index, in order. Needs the local: heads (see lanes.lua).
local function lane_names()
  local index, names = redis.call('GET', heads), {}
  local lanes = #index / 68
  for position = 1, lanes do names[position] = string.match(index, '^%S+', 56 * lanes + 12 * position - 11) end
  return names
end
