-- A caller's limits: which of them keeps a request out, and for how long. Third part of the
-- admission library, after counters.lua.

local ASK_AGAIN_MS = 1000           -- when a request at once ends is unknown
local NEVER = -1
local MOST_PLANS = 1024

-- What a request costs of each kind of limit; of all others, its tokens.
local COSTS = { [OPEN] = 'sequences', [MINUTE_REQUESTS] = 'one', [DAY_NANOS] = 'nanos',
  [MONTH_NANOS] = 'nanos', [BALANCE] = 'nanos' }

local plans, count_of_plans = {}, 0

-- Return the owners that have a limit of this kind.
local function owners_limited(is_limited, kind)
  local owners = {}
  for owner = 1, OWNERS do
    if is_limited[kind + owner] then
      owners[#owners + 1] = owner
    end
  end
  return owners
end

-- Return a caller's limits, given as msgpack of one list that has of each its position in the use,
-- its value and 1 if it is hard. A plan has these in lists, with the kind and the owner of each
-- position and what a request costs there; then the owners whose sliding minutes they need, and
-- `windows`, a digit for each owner: 1 where its tokens count in a minute.
local function plan_of(packed)
  local plan = plans[packed]
  if plan then
    return plan
  end
  local positions, kinds, owners, values, is_hard, costs = {}, {}, {}, {}, {}, {}
  local given, is_limited = cmsgpack.unpack(packed), {}
  for index = 1, #given, 3 do
    local position, value, hard = unpack(given, index, index + 2)
    local owner, count = (position - 1) % OWNERS + 1, #positions + 1
    local kind = position - owner
    positions[count], kinds[count], owners[count] = position, kind, owner
    values[count], is_hard[count], costs[count] = value, hard == 1, COSTS[kind] or 'tokens'
    is_limited[position] = true
  end
  local windows = ''
  for owner = 1, OWNERS do
    windows = windows .. (is_limited[MINUTE_TOKENS + owner] and '1' or '0')
  end
  plan = { count = #positions, positions = positions, kinds = kinds, owners = owners,
    values = values, is_hard = is_hard, costs = costs, windows = windows,
    requests = owners_limited(is_limited, MINUTE_REQUESTS),
    tokens = owners_limited(is_limited, MINUTE_TOKENS),
    needs_balance = is_limited[BALANCE + TENANT] }
  if count_of_plans == MOST_PLANS then
    plans, count_of_plans = {}, 0
  end
  plans[packed], count_of_plans = plan, count_of_plans + 1
  return plan
end

-- Return how long, in ms, until a month of UTC ends.
local function rest_of_month(now)
  local day = math.floor(now / DAY_MS)
  local month, first = month_of(day), day + 1
  while month_of(first) == month do
    first = first + 1
  end
  return first * DAY_MS - now
end

-- Return how long until `cost` more fits under the limit, in ms, or NEVER.
local function wait_for(account, kind, owner, used, cost, value, now)
  local tenant, name = account.tenant, account[owner]
  if cost > value or kind == BALANCE then
    return NEVER
  elseif kind == OPEN then
    return ASK_AGAIN_MS
  elseif kind == MINUTE_TOKENS then
    return room_for_tokens(token_window(tenant, name), used + cost - value, now) - now
  elseif kind == MINUTE_REQUESTS then
    return room_for_request(request_window(tenant, name), used + cost - 1, value, now) - now
  elseif kind == DAY_TOKENS or kind == DAY_NANOS then
    return (math.floor(now / DAY_MS) + 1) * DAY_MS - now
  end
  return rest_of_month(now)
end

-- Find the hard limit that keeps the request out for longest; return which of the plan's, 0 if
-- none does, and the wait.
local function find_refusal(account, plan, use, tokens, nanos, sequences, now)
  local refusing, longest = 0, 0
  local amounts = { tokens = tokens, nanos = nanos, sequences = sequences, one = 1 }
  local positions, values, costs, is_hard = plan.positions, plan.values, plan.costs, plan.is_hard
  for index = 1, plan.count do
    local used, cost = use[positions[index]], amounts[costs[index]]
    if used + cost > values[index] and is_hard[index] then
      local wait = wait_for(account, plan.kinds[index], plan.owners[index], used, cost,
        values[index], now)
      if wait == NEVER then
        return index, NEVER
      elseif wait > longest then
        refusing, longest = index, wait
      end
    end
  end
  return refusing, longest
end
