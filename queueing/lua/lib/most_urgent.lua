-- The claim rule of queueing.policy, over the heads of all lanes in layout order.
-- `index`: see lanes.lua. `ranks`: four doubles a lane: tier, head start (ms), rate, greatest age (ms).
-- `layout`: the lanes' names, 12 characters each. Returns position, lane and the number of waiting jobs.
local function most_urgent(index, ranks, layout, now, wanted)
  local lanes = #index / 16
  local head = {struct.unpack('<' .. string.rep('d', 2 * lanes), index)}
  local rank = {struct.unpack('<' .. string.rep('d', 4 * lanes), ranks)}
  local function name(position) return string.match(layout, '^%S+', 12 * position - 11) end
  local total, best, best_tier, best_urgency = 0, nil, math.huge, -math.huge
  local overdue, most_overdue = nil, -math.huge
  for position = 1, lanes do
    local depth = head[2 * position - 1]
    total = total + depth
    if depth > 0 and not (wanted and not wanted[name(position)]) then
      local score, at = head[2 * position], 4 * position - 3
      -- Arrivals are whole milliseconds: rounding undoes what the subtraction lost, so ages are exact.
      local over = now - math.floor(score + rank[at + 1] + 0.5) - rank[at + 3]
      if over >= 0 and over > most_overdue then overdue, most_overdue = position, over end
      local tier, urgency = rank[at], (now - score) * rank[at + 2]
      if tier < best_tier or (tier == best_tier and urgency > best_urgency) then
        best, best_tier, best_urgency = position, tier, urgency
      end
    end
  end
  best = overdue or best
  if not best then return nil, nil, total end
  return best, name(best), total
end
