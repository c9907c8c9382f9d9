-- The claim rule of queueing.policy, over the heads of all lanes (`index`: see lanes.lua). Kept lean for every claim.
-- Returns the lane's position, its name, and how many jobs all lanes hold.
local function most_urgent(index, lanes, now, wanted)
  local head = {struct.unpack('<' .. string.rep('ddddd', lanes), index)}
  local names = 56 * lanes
  local total, best, best_tier, best_urgency = 0, nil, math.huge, 0
  local overdue, earliest_due = nil, math.huge
  local at = 1
  for position = 1, lanes do
    local depth = head[at]
    total = total + depth
    if depth > 0 and not (wanted and not wanted[string.match(index, '^%S+', names + 12 * position - 11)]) then
      if head[at + 2] < earliest_due then overdue, earliest_due = position, head[at + 2] end
      local tier = head[at + 3]
      if tier <= best_tier then
        local urgency = (now - head[at + 1]) * head[at + 4]
        if tier < best_tier or urgency > best_urgency then
          best, best_tier, best_urgency = position, tier, urgency
        end
      end
    end
    at = at + 5
  end
  if earliest_due <= now then best = overdue end
  if not best then return nil, nil, total end
  return best, string.match(index, '^%S+', names + 12 * best - 11), total
end
