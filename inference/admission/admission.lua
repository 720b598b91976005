-- What one tenant uses of its limits: at its keys, its projects and as a whole, for all gateways.
-- Second part of the admission library, after admission/windows.lua.
--
-- Every function takes one key, the tenant's prefix `{t:<tenant>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py. Time is Redis TIME in milliseconds; the last argument
-- of each function overrides it, for tests. A reservation never expires by itself: a sweeper asks
-- the pool first.
--
-- A request counts at three owners: its key, its project and its tenant, in this order. Requests
-- at once and the tokens and nano-dollars of day and month are counted for each; the sliding
-- minutes only where a limit asks for it, since they forget by themselves within a minute. What a
-- tenant has ever spent is counted always, in nano-dollars: `settled` by what has ended, `reserved`
-- by what is open and by withdrawals. Its limit is all credit that it was ever given, so nothing
-- here needs to know what is left of it.

local ASK_AGAIN_MS = 1000           -- when a request at once ends is unknown
local DAY_TTL_SECONDS = 3 * 86400   -- this and the next from the first request of the period on
local MONTH_TTL_SECONDS = 93 * 86400
local NEVER = -1

local BALANCE_OF_TENANT = BALANCE + TENANT

-- limits -------------------------------------------------------------------------------------------

local MOST_PLANS = 1024
local plans, count_of_plans = {}, 0

-- A caller's limits, given as msgpack of a list that has of each its place in the use, its value
-- and whether it is hard: places, values, is_hard, and what a request costs there ('one', 'tokens'
-- or 'nanos'). Then the owners whose sliding minutes they need, and `windows`, a digit for each
-- owner: 1 where its tokens count in a minute.
local function plan_of(packed)
  local plan = plans[packed]
  if plan then
    return plan
  end
  plan = { count = 0, places = {}, values = {}, is_hard = {}, costs = {}, requests = {},
    tokens = {}, windows = '', needs_balance = false }
  local given, is_seen = cmsgpack.unpack(packed), {}
  for index = 1, #given, 3 do
    local place, count = given[index], plan.count + 1
    plan.count, plan.places[count], plan.values[count] = count, place, given[index + 1]
    plan.is_hard[count] = given[index + 2] == 1
    plan.costs[count] = 'tokens'
    if place <= DAY_TOKENS or (place > MINUTE_REQUESTS and place <= MINUTE_TOKENS) then
      plan.costs[count] = 'one'
    elseif place > MONTH_NANOS and place <= MINUTE_REQUESTS then
      plan.costs[count] = 'nanos'
    end
    plan.needs_balance = plan.needs_balance or place == BALANCE_OF_TENANT
    if place > MINUTE_REQUESTS and not is_seen[place] then
      local owners = place > MINUTE_TOKENS and plan.tokens or plan.requests
      owners[#owners + 1], is_seen[place] = (place - 1) % OWNERS + 1, true
    end
  end
  for owner = 1, OWNERS do
    plan.windows = plan.windows .. (is_seen[MINUTE_TOKENS + owner] and '1' or '0')
  end
  if count_of_plans == MOST_PLANS then
    plans, count_of_plans = {}, 0
  end
  plans[packed], count_of_plans = plan, count_of_plans + 1
  return plan
end

-- use ----------------------------------------------------------------------------------------------

-- The owners of a request, and the keys and fields that it counts at.
local function account_of(tenant, key_id, project_id, at)
  local key, project = 'key:' .. key_id, 'project:' .. project_id
  local day, month = periods(tenant, at)
  return { key, project, 'tenant', tenant = tenant, open = tenant .. ':open', day = day,
    month = month, balance = tenant .. ':balance',
    key_tokens = key .. ':tokens', key_nanos = key .. ':nanos',
    project_tokens = project .. ':tokens', project_nanos = project .. ':nanos' }
end

local function read_open(account)
  return call('HMGET', account.open, account[1], account[2], 'tenant')
end

local function read_day(account)
  return call('HMGET', account.day, account[1], account[2], 'tenant', account.key_nanos,
    account.project_nanos, 'tenant:nanos')
end

local function read_month(account)
  return call('HMGET', account.month, account.key_tokens, account.project_tokens, 'tenant:tokens',
    account.key_nanos, account.project_nanos, 'tenant:nanos')
end

local function write_day(account, key_tokens, project_tokens, tokens, key_nanos, project_nanos,
  nanos)
  call('HSET', account.day, account[1], key_tokens, account[2], project_tokens, 'tenant', tokens,
    account.key_nanos, key_nanos, account.project_nanos, project_nanos, 'tenant:nanos', nanos)
end

-- What a tenant has ever spent or reserved.
local function spent_by(balance)
  local spent = call('HMGET', balance, 'settled', 'reserved')
  return (tonumber(spent[1]) or 0) + (tonumber(spent[2]) or 0)
end

local function write_month(account, key_tokens, project_tokens, tokens, key_nanos, project_nanos,
  nanos)
  call('HSET', account.month, account.key_tokens, key_tokens, account.project_tokens, project_tokens,
    'tenant:tokens', tokens, account.key_nanos, key_nanos, account.project_nanos, project_nanos,
    'tenant:nanos', nanos)
end

-- -> the use; by owner, the tokens of this second in its window. The sliding minutes only where a
-- limit needs them.
local function read_use(account, plan, now)
  local open, day, month = read_open(account), read_day(account), read_month(account)
  local use = { tonumber(open[1]) or 0, tonumber(open[2]) or 0, tonumber(open[3]) or 0,
    tonumber(day[1]) or 0, tonumber(day[2]) or 0, tonumber(day[3]) or 0,
    tonumber(month[1]) or 0, tonumber(month[2]) or 0, tonumber(month[3]) or 0,
    tonumber(month[4]) or 0, tonumber(month[5]) or 0, tonumber(month[6]) or 0,
    tonumber(day[4]) or 0, tonumber(day[5]) or 0, tonumber(day[6]) or 0,
    0, 0, plan.needs_balance and spent_by(account.balance) or 0 }
  local of_second, tenant = {}, account.tenant
  for _, owner in ipairs(plan.requests) do
    use[MINUTE_REQUESTS + owner] = requests_in(request_window(tenant, account[owner]), now)
  end
  for _, owner in ipairs(plan.tokens) do
    use[MINUTE_TOKENS + owner], of_second[owner] = tokens_in(token_window(tenant, account[owner]), now)
  end
  account.is_new_day, account.is_new_month = not day[3], not month[3]
  return use, of_second
end

-- How long until `cost` more fits under the limit, in ms, or NEVER.
local function wait_for(account, place, used, cost, value, now)
  local tenant, owner, day = account.tenant, account[(place - 1) % OWNERS + 1], math.floor(now / DAY_MS)
  if cost > value then
    return NEVER
  elseif place > MINUTE_TOKENS then
    return room_for_tokens(token_window(tenant, owner), used + cost - value, now) - now
  elseif place > MINUTE_REQUESTS then
    return room_for_request(request_window(tenant, owner), used + cost - 1, value, now) - now
  elseif place > BALANCE then
    return NEVER
  elseif place <= DAY_TOKENS then
    return ASK_AGAIN_MS
  elseif place <= MONTH_TOKENS or place > DAY_NANOS then
    return (day + 1) * DAY_MS - now
  end
  local month, first = month_of(day), day + 1
  while month_of(first) == month do
    first = first + 1
  end
  return first * DAY_MS - now
end

-- The hard limit that keeps the request out for longest: which of the plan's, and the wait.
local function find_refusal(account, plan, use, tokens, nanos, now)
  local refusing, longest = 0, 0
  local places, values, costs = plan.places, plan.values, plan.costs
  for index = 1, plan.count do
    local place, cost = places[index], costs[index]
    cost = cost == 'tokens' and tokens or cost == 'one' and 1 or nanos
    if use[place] + cost > values[index] and plan.is_hard[index] then
      local wait = wait_for(account, place, use[place], cost, values[index], now)
      if wait == NEVER then
        return index, NEVER
      elseif wait > longest then
        refusing, longest = index, wait
      end
    end
  end
  return refusing, longest
end

-- Writes the use of all owners with what the request adds; in one function nothing comes between.
local function take(account, plan, request_id, use, of_second, tokens, nanos, now)
  local tenant = account.tenant
  for _, owner in ipairs(plan.requests) do
    add_request(request_window(tenant, account[owner]), now, request_id, use[MINUTE_REQUESTS + owner])
  end
  for _, owner in ipairs(plan.tokens) do
    add_tokens(token_window(tenant, account[owner]), now, use[MINUTE_TOKENS + owner], of_second[owner],
      tokens)
  end
  call('HSET', account.open, account[1], use[OPEN + KEY] + 1, account[2], use[OPEN + PROJECT] + 1, 'tenant',
    use[OPEN + TENANT] + 1)
  write_day(account, use[DAY_TOKENS + KEY] + tokens, use[DAY_TOKENS + PROJECT] + tokens, use[DAY_TOKENS + TENANT] + tokens,
    use[DAY_NANOS + KEY] + nanos, use[DAY_NANOS + PROJECT] + nanos, use[DAY_NANOS + TENANT] + nanos)
  write_month(account, use[MONTH_TOKENS + KEY] + tokens, use[MONTH_TOKENS + PROJECT] + tokens, use[MONTH_TOKENS + TENANT] + tokens,
    use[MONTH_NANOS + KEY] + nanos, use[MONTH_NANOS + PROJECT] + nanos, use[MONTH_NANOS + TENANT] + nanos)
  if nanos ~= 0 then
    call('HINCRBY', account.balance, 'reserved', nanos)
  end
  if account.is_new_day then
    call('EXPIRE', account.day, DAY_TTL_SECONDS)
  end
  if account.is_new_month then
    call('EXPIRE', account.month, MONTH_TTL_SECONDS)
  end
end

-- reservations -------------------------------------------------------------------------------------

-- msgpack of {at, windows, claim}; the claim is packed already.
local function pack_reservation(at, windows, packed_claim)
  return '\147' .. cmsgpack.pack(at, windows) .. packed_claim
end

-- -> {at, windows, claim}, its account; nil: nothing is reserved
local function reservation_of(tenant, request_id)
  local packed = call('HGET', tenant .. ':reservations', request_id)
  if not packed then
    return nil
  end
  local reservation = cmsgpack.unpack(packed)
  local claim = reservation[3]
  return reservation, account_of(tenant, claim[REQUEST_KEY_ID], claim[REQUEST_PROJECT_ID], reservation[1])
end

-- Moves an open reservation to other amounts, in the periods that it was made in.
local function move(account, reservation, tokens, nanos)
  local at, windows, claim = reservation[1], reservation[2], reservation[3]
  local more_tokens, more_nanos = tokens - claim[REQUEST_TOKENS], nanos - claim[REQUEST_NANOS]
  if more_tokens == 0 and more_nanos == 0 then
    return
  end
  for owner = 1, OWNERS do
    if string.sub(windows, owner, owner) == '1' then
      correct_tokens(token_window(account.tenant, account[owner]), at, more_tokens)
    end
  end
  local day, month = read_day(account), read_month(account)
  if day[3] then
    write_day(account, (tonumber(day[1]) or 0) + more_tokens, (tonumber(day[2]) or 0) + more_tokens,
      day[3] + more_tokens, (tonumber(day[4]) or 0) + more_nanos,
      (tonumber(day[5]) or 0) + more_nanos, (tonumber(day[6]) or 0) + more_nanos)
  end
  if month[3] then
    write_month(account, (tonumber(month[1]) or 0) + more_tokens,
      (tonumber(month[2]) or 0) + more_tokens, month[3] + more_tokens,
      (tonumber(month[4]) or 0) + more_nanos, (tonumber(month[5]) or 0) + more_nanos,
      (tonumber(month[6]) or 0) + more_nanos)
  end
  if more_nanos ~= 0 then
    call('HINCRBY', account.balance, 'reserved', more_nanos)
  end
  claim[REQUEST_TOKENS], claim[REQUEST_NANOS] = tokens, nanos
end

-- One request less is open at each owner, and what it took is spent.
local function close(account, nanos)
  if nanos ~= 0 then
    call('HINCRBY', account.balance, 'reserved', -nanos)
    call('HINCRBY', account.balance, 'settled', nanos)
  end
  local left, gone, open = {}, {}, read_open(account)
  for owner = 1, OWNERS do
    local count = (tonumber(open[owner]) or 0) - 1
    if count > 0 then
      left[#left + 1], left[#left + 2] = account[owner], count
    else
      gone[#gone + 1] = account[owner]
    end
  end
  if #left > 0 then
    call('HSET', account.open, unpack(left))
  end
  if #gone > 0 then
    call('HDEL', account.open, unpack(gone))
  end
end

-- functions ----------------------------------------------------------------------------------------

-- ARGV: request_id key_id project_id tokens nanos claim limits [now] -> {now, which limit refuses or
-- 0, wait_ms or NEVER, used of each limit}. All or nothing; asking again for the same request is
-- free. The claim is msgpack of {key_id, project_id, tokens, nanos, ...}.
local function reserve(keys, args)
  call = redis.call
  local tenant, request_id, now = keys[1], args[1], now_ms(args[8])
  local tokens, nanos, plan = tonumber(args[4]), tonumber(args[5]), plan_of(args[7])
  local account, refusing, wait = account_of(tenant, args[2], args[3], now), 0, 0
  local use, of_second = read_use(account, plan, now)
  local reservations = tenant .. ':reservations'
  if call('HSETNX', reservations, request_id, pack_reservation(now, plan.windows, args[6])) == 1 then
    refusing, wait = find_refusal(account, plan, use, tokens, nanos, now)
    if refusing == 0 then
      take(account, plan, request_id, use, of_second, tokens, nanos, now)
    else
      call('HDEL', reservations, request_id)
    end
  end
  local answer = { now, refusing, wait }
  for index, place in ipairs(plan.places) do
    answer[index + 3] = use[place]
  end
  return answer
end

-- ARGV: request_id tokens nanos -> 1 | 0 nothing is reserved. Never raises what is reserved.
local function true_down(keys, args)
  call = redis.call
  local tenant, request_id = keys[1], args[1]
  local reservation, account = reservation_of(tenant, request_id)
  if not reservation then
    return 0
  end
  local claim = reservation[3]
  move(account, reservation, math.min(tonumber(args[2]), claim[REQUEST_TOKENS]),
    math.min(tonumber(args[3]), claim[REQUEST_NANOS]))
  call('HSET', tenant .. ':reservations', request_id, cmsgpack.pack(reservation))
  return 1
end

-- ARGV: request_id tokens nanos -> 1 | 0 nothing is reserved. What was really used stays counted,
-- nothing of it where both are 0; the request stays in its minute.
local function settle(keys, args)
  call = redis.call
  local tenant, request_id = keys[1], args[1]
  local reservation, account = reservation_of(tenant, request_id)
  if not reservation then
    return 0
  end
  move(account, reservation, tonumber(args[2]), tonumber(args[3]))
  close(account, tonumber(args[3]))
  return call('HDEL', tenant .. ':reservations', request_id)
end

-- ARGV: key_id project_id limits [now] -> {now, used and the ms until it is all free again of each
-- limit, the latter 0 where nothing is used or nobody knows}
local function standing(keys, args)
  call = redis.call
  local now, plan = now_ms(args[4]), plan_of(args[3])
  local account = account_of(keys[1], args[1], args[2], now)
  local use, answer = read_use(account, plan, now), { now }
  for _, place in ipairs(plan.places) do
    local used, wait = use[place], 0
    if used > 0 and place > DAY_TOKENS and place ~= BALANCE_OF_TENANT then
      wait = wait_for(account, place, used, used, used, now)
    end
    answer[#answer + 1], answer[#answer + 2] = used, wait
  end
  return answer
end

redis.register_function('penstock_reserve_1', reserve)
redis.register_function('penstock_true_down_1', true_down)
redis.register_function('penstock_settle_1', settle)
redis.register_function('penstock_standing_1', standing)
