#!lua name=penstock_admission_2
-- What one tenant uses of its limits: at its keys, its projects and as a whole, for all gateways.
--
-- Every function takes one key, the tenant's prefix `{t:<tenant>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py. Time is Redis TIME in milliseconds; the last argument
-- of each function overrides it, for tests. A reservation never expires by itself: a sweeper asks
-- the pool first.
--
-- A request counts at three owners: its key, its project and its tenant, in this order. Requests
-- at once and the tokens and nano-dollars of day and month are counted for each; the sliding
-- minutes only where a limit asks for it, since they forget by themselves within a minute.

local MINUTE_MS = 60000
local DAY_MS = 86400000
local BUCKETS = 60                  -- seconds of the token window, besides the current one
local ASK_AGAIN_MS = 1000           -- when a request at once ends is unknown
local DAY_TTL_SECONDS = 3 * 86400
local MONTH_TTL_SECONDS = 93 * 86400
local NEVER = -1

-- Kinds of limits, as inference/limits.py numbers them.
local REQUESTS, TOKENS, OPEN, DAY, MONTH, SPEND = 1, 2, 3, 4, 5, 6
-- Places in a claim, as inference/reservations.py writes it; what follows is not read here.
local KEY, PROJECT, CLAIMED_TOKENS, CLAIMED_NANOS = 1, 2, 3, 4

local function now_ms(override)
  if override then
    return tonumber(override)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- 202611 for a day since 1970-01-01, in the proleptic Gregorian calendar (H. Hinnant's algorithm:
-- years begin in March, eras have 400 of them).
local function month_of(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
    - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local from_march = math.floor((5 * of_year + 2) / 153)
  local month = from_march < 10 and from_march + 3 or from_march - 9
  return (year + era * 400 + (month <= 2 and 1 or 0)) * 100 + month
end

local function periods(tenant, at)
  local day = math.floor(at / DAY_MS)
  return tenant .. ':day:' .. day, tenant .. ':month:' .. month_of(day)
end

local function owners_of(claim)
  return { 'key:' .. claim[KEY], 'project:' .. claim[PROJECT], 'tenant' }
end

-- sliding minutes ----------------------------------------------------------------------------------

local function request_window(tenant, owner) return tenant .. ':requests:' .. owner end
local function token_window(tenant, owner) return tenant .. ':tokens:' .. owner end

local function requests_in(window, now)
  redis.call('ZREMRANGEBYSCORE', window, '-inf', now - MINUTE_MS)
  return redis.call('ZCARD', window)
end

-- Tokens in buckets of a second: `sum` of those from second `from` on. The oldest bucket counts
-- whole until its last instant has left the minute, so the error is on the side of refusing. A
-- bucket lies at most BUCKETS seconds after `from`: nothing is added before this has run.
local function tokens_in(window, now)
  local state = redis.call('HMGET', window, 'sum', 'from')
  if not state[1] then
    return 0
  end
  local sum, from = tonumber(state[1]), tonumber(state[2])
  local first = math.floor(now / 1000) - BUCKETS
  if from >= first then
    return sum
  end
  if first > from + BUCKETS then
    redis.call('DEL', window)
    return 0
  end
  local stale = {}
  for second = from, first - 1 do
    stale[#stale + 1] = second
  end
  for _, tokens in ipairs(redis.call('HMGET', window, unpack(stale))) do
    sum = sum - (tonumber(tokens) or 0)
  end
  redis.call('HDEL', window, unpack(stale))
  redis.call('HSET', window, 'sum', sum, 'from', first)
  return sum
end

local function add_tokens(window, now, tokens)
  local second = math.floor(now / 1000)
  redis.call('HSETNX', window, 'from', second - BUCKETS)
  redis.call('HINCRBY', window, 'sum', tokens)
  redis.call('HINCRBY', window, second, tokens)
  redis.call('PEXPIRE', window, MINUTE_MS + 2000)
end

-- Corrects what was added at a time, if that is still in the window.
local function correct_tokens(window, at, more)
  local second, from = math.floor(at / 1000), redis.call('HGET', window, 'from')
  if from and second >= tonumber(from) then
    redis.call('HINCRBY', window, 'sum', more)
    redis.call('HINCRBY', window, second, more)
  end
end

-- use ----------------------------------------------------------------------------------------------

-- use[kind][owner's place]; the sliding minutes only for the owners that a limit names.
local function read_use(tenant, owners, limits, now)
  local day, month = periods(tenant, now)
  local open, of_day = redis.call('HMGET', tenant .. ':open', unpack(owners)),
    redis.call('HMGET', day, unpack(owners))
  local of_month = redis.call('HMGET', month,
    owners[1] .. ':tokens', owners[2] .. ':tokens', owners[3] .. ':tokens',
    owners[1] .. ':nanos', owners[2] .. ':nanos', owners[3] .. ':nanos')
  local use = { {}, {}, {}, {}, {}, {} }
  for place = 1, 3 do
    use[OPEN][place] = tonumber(open[place]) or 0
    use[DAY][place] = tonumber(of_day[place]) or 0
    use[MONTH][place] = tonumber(of_month[place]) or 0
    use[SPEND][place] = tonumber(of_month[place + 3]) or 0
  end
  for _, limit in ipairs(limits) do
    local place, kind = limit[1], limit[2]
    if not use[kind][place] then
      use[kind][place] = kind == REQUESTS and requests_in(request_window(tenant, owners[place]), now)
        or tokens_in(token_window(tenant, owners[place]), now)
    end
  end
  return use
end

-- How long until `cost` more fits under the limit, in ms, or NEVER.
local function wait_for(tenant, owner, kind, used, cost, value, now)
  local day = math.floor(now / DAY_MS)
  if cost > value then
    return NEVER
  elseif kind == REQUESTS then
    local place = used + cost - value - 1
    local leaving = redis.call('ZRANGE', request_window(tenant, owner), place, place, 'WITHSCORES')
    return tonumber(leaving[2]) + MINUTE_MS - now
  elseif kind == TOKENS then
    local second = math.floor(now / 1000)
    local too_many, oldest, buckets = used + cost - value, second - BUCKETS, {}
    for each = oldest, second do
      buckets[#buckets + 1] = each
    end
    for place, tokens in ipairs(redis.call('HMGET', token_window(tenant, owner), unpack(buckets))) do
      too_many = too_many - (tonumber(tokens) or 0)
      if too_many <= 0 then
        return (oldest + place + BUCKETS) * 1000 - now
      end
    end
    return MINUTE_MS
  elseif kind == OPEN then
    return ASK_AGAIN_MS
  elseif kind == DAY then
    return (day + 1) * DAY_MS - now
  end
  local month, first = month_of(day), day + 1
  while month_of(first) == month do
    first = first + 1
  end
  return first * DAY_MS - now
end

-- The hard limit that keeps the request out for longest: its place in `limits` and the wait.
local function find_refusal(tenant, owners, limits, use, costs, now)
  local refusing, longest = 0, 0
  for place, limit in ipairs(limits) do
    local kind, value = limit[2], limit[3]
    local used, cost = use[kind][limit[1]], costs[kind]
    if limit[4] == 1 and used + cost > value then
      local wait = wait_for(tenant, owners[limit[1]], kind, used, cost, value, now)
      if wait == NEVER then
        return place, NEVER
      elseif wait > longest then
        refusing, longest = place, wait
      end
    end
  end
  return refusing, longest
end

-- Writes the use of all owners with what the request adds; in one function nothing comes between.
local function take(tenant, request_id, claim, owners, use, now)
  local tokens, nanos = claim[CLAIMED_TOKENS], claim[CLAIMED_NANOS]
  local day, month = periods(tenant, now)
  local of_open, of_day, of_month, windows = {}, {}, {}, ''
  for place, owner in ipairs(owners) do
    of_open[2 * place - 1], of_open[2 * place] = owner, use[OPEN][place] + 1
    of_day[2 * place - 1], of_day[2 * place] = owner, use[DAY][place] + tokens
    of_month[4 * place - 3], of_month[4 * place - 2] = owner .. ':tokens', use[MONTH][place] + tokens
    of_month[4 * place - 1], of_month[4 * place] = owner .. ':nanos', use[SPEND][place] + nanos
    if use[REQUESTS][place] then
      redis.call('ZADD', request_window(tenant, owner), now, request_id)
      redis.call('PEXPIRE', request_window(tenant, owner), MINUTE_MS)
    end
    if use[TOKENS][place] then
      add_tokens(token_window(tenant, owner), now, tokens)
    end
    windows = windows .. (use[TOKENS][place] and '1' or '0')
  end
  redis.call('HSET', tenant .. ':open', unpack(of_open))
  redis.call('HSET', day, unpack(of_day))
  redis.call('HSET', month, unpack(of_month))
  redis.call('EXPIRE', day, DAY_TTL_SECONDS)
  redis.call('EXPIRE', month, MONTH_TTL_SECONDS)
  redis.call('HSET', tenant .. ':reservations', request_id, cmsgpack.pack({ now, windows, claim }))
end

-- functions ----------------------------------------------------------------------------------------

-- ARGV: request_id claim limits [now] -> {now, refusing limit's place or 0, wait_ms or NEVER,
-- used of each limit}. All or nothing; asking again for the same request is free. A claim is
-- msgpack of {key_id, project_id, tokens, nanos, ...}, `limits` of {owner, kind, value, is_hard}.
local function reserve(keys, args)
  local tenant, request_id, now = keys[1], args[1], now_ms(args[4])
  local claim, limits = cmsgpack.unpack(args[2]), cmsgpack.unpack(args[3])
  local owners, refusing, wait = owners_of(claim), 0, 0
  local use = read_use(tenant, owners, limits, now)
  if redis.call('HEXISTS', tenant .. ':reservations', request_id) == 0 then
    local tokens, nanos = claim[CLAIMED_TOKENS], claim[CLAIMED_NANOS]
    local costs = { 1, tokens, 1, tokens, tokens, nanos }
    refusing, wait = find_refusal(tenant, owners, limits, use, costs, now)
    if refusing == 0 then
      take(tenant, request_id, claim, owners, use, now)
    end
  end
  local answer = { now, refusing, wait }
  for place, limit in ipairs(limits) do
    answer[place + 3] = use[limit[2]][limit[1]]
  end
  return answer
end

-- Moves an open reservation to other amounts, in the periods that it was made in.
local function move(tenant, reservation, tokens, nanos)
  local at, windows, claim = reservation[1], reservation[2], reservation[3]
  local more_tokens, more_nanos = tokens - claim[CLAIMED_TOKENS], nanos - claim[CLAIMED_NANOS]
  if more_tokens == 0 and more_nanos == 0 then
    return
  end
  local day, month = periods(tenant, at)
  local has_day, has_month = redis.call('EXISTS', day) == 1, redis.call('EXISTS', month) == 1
  for place, owner in ipairs(owners_of(claim)) do
    if string.sub(windows, place, place) == '1' then
      correct_tokens(token_window(tenant, owner), at, more_tokens)
    end
    if has_day then
      redis.call('HINCRBY', day, owner, more_tokens)
    end
    if has_month then
      redis.call('HINCRBY', month, owner .. ':tokens', more_tokens)
      redis.call('HINCRBY', month, owner .. ':nanos', more_nanos)
    end
  end
  claim[CLAIMED_TOKENS], claim[CLAIMED_NANOS] = tokens, nanos
end

local function reservation_of(tenant, request_id)
  local packed = redis.call('HGET', tenant .. ':reservations', request_id)
  return packed and cmsgpack.unpack(packed)
end

-- ARGV: request_id tokens nanos -> 1 | 0 nothing is reserved. Never raises what is reserved.
local function true_down(keys, args)
  local tenant, request_id = keys[1], args[1]
  local reservation = reservation_of(tenant, request_id)
  if not reservation then
    return 0
  end
  local claim = reservation[3]
  move(tenant, reservation, math.min(tonumber(args[2]), claim[CLAIMED_TOKENS]),
    math.min(tonumber(args[3]), claim[CLAIMED_NANOS]))
  redis.call('HSET', tenant .. ':reservations', request_id, cmsgpack.pack(reservation))
  return 1
end

-- ARGV: request_id tokens nanos -> 1 | 0 nothing is reserved. What was really used stays counted,
-- nothing of it where both are 0; the request stays in its minute.
local function settle(keys, args)
  local tenant, request_id = keys[1], args[1]
  local reservation = reservation_of(tenant, request_id)
  if not reservation then
    return 0
  end
  move(tenant, reservation, tonumber(args[2]), tonumber(args[3]))
  for _, owner in ipairs(owners_of(reservation[3])) do
    if redis.call('HINCRBY', tenant .. ':open', owner, -1) <= 0 then
      redis.call('HDEL', tenant .. ':open', owner)
    end
  end
  return redis.call('HDEL', tenant .. ':reservations', request_id)
end

-- ARGV: key_id project_id limits [now] -> {now, used and the ms until it is all free again of each
-- limit, the latter 0 where nothing is used or nobody knows}
local function standing(keys, args)
  local tenant, now, limits = keys[1], now_ms(args[4]), cmsgpack.unpack(args[3])
  local owners = owners_of({ args[1], args[2] })
  local use, answer = read_use(tenant, owners, limits, now), { now }
  for _, limit in ipairs(limits) do
    local place, kind = limit[1], limit[2]
    local used, wait = use[kind][place], 0
    if used > 0 and kind ~= OPEN then
      wait = wait_for(tenant, owners[place], kind, used, used, used, now)
    end
    answer[#answer + 1], answer[#answer + 2] = used, wait
  end
  return answer
end

redis.register_function('penstock_reserve_2', reserve)
redis.register_function('penstock_true_down_2', true_down)
redis.register_function('penstock_settle_2', settle)
redis.register_function('penstock_standing_2', standing)
