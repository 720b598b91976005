-- Time and the sliding minutes of one tenant's limits. First part of the admission library, whose
-- other parts build on it in the order that inference/redis_functions.py gives. The prelude before
-- it has the constants of inference/lua_constants.py.
--
-- Every request pays for `reserve`, and to call Redis costs more than what most calls do. So in
-- this library what is needed of a hash is read by one call, changed here and written by one, and
-- what need not happen each time (expiry, removing what is old) happens from time to time.

local MINUTE_MS = 60000
local DAY_MS = 86400000
local BUCKETS = 60                  -- seconds of the token window, besides the current one
local REQUESTS_TTL_MS = 3600000     -- renewed by one request in eight
local TOKENS_TTL_MS = 600000        -- renewed once in half of it

local call  -- redis.call: each function sets it, as it is not there yet while a library is loaded

-- Return a time in ms: the override, which only tests give, or else Redis TIME.
local function now_ms(override)
  if override then
    return tonumber(override)
  end
  local seconds, microseconds = unpack(call('TIME'))
  return tonumber(seconds) * 1000 + math.floor(tonumber(microseconds) / 1000)
end

-- Return the month, 202611 for instance, of a day since 1970-01-01, in the proleptic Gregorian
-- calendar (H. Hinnant's algorithm: years begin in March, eras have 400 of them).
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

local known_day, day_suffix, month_suffix  -- of the day asked for last, which is mostly the same

-- Return the keys of the day and the month of a time in ms.
local function periods(tenant, at)
  local day = math.floor(at / DAY_MS)
  if day ~= known_day then
    known_day, day_suffix, month_suffix = day, SUFFIX.day .. day, SUFFIX.month .. month_of(day)
  end
  return tenant .. day_suffix, tenant .. month_suffix
end

-- Requests --------------------------------------------------------------------------------------

-- Return the key of an owner's window: a sorted set of request ids, scored by their time in ms.
local function request_window(tenant, owner) return tenant .. SUFFIX.request_window .. owner end

-- Return how many requests the minute before now had; none of a clock that was ahead then.
local function requests_in(window, now)
  return call('ZCOUNT', window, '(' .. now - MINUTE_MS, now)
end

-- Remove the requests that have left the minute.
local function forget_requests(window, now)
  call('ZREMRANGEBYSCORE', window, '-inf', now - MINUTE_MS)
end

-- Add a request to a window that has so many. The first after a pause removes what is old, and
-- otherwise one in eight, by the last digit of its id.
local function add_request(window, now, request_id, used)
  call('ZADD', window, now, request_id)
  if used == 0 or string.byte(request_id, -1) % 8 == 0 then
    forget_requests(window, now)
    call('PEXPIRE', window, REQUESTS_TTL_MS)
  end
end

-- Return when, in ms, a window of so many requests has room for one more under a limit.
local function room_for_request(window, used, limit, now)
  forget_requests(window, now)
  local _, leaving = unpack(call('ZRANGE', window, used - limit, used - limit, 'WITHSCORES'))
  return tonumber(leaving) + MINUTE_MS
end

-- Tokens ----------------------------------------------------------------------------------------

-- Return the key of an owner's window: a hash of buckets of a second, with the `sum` of those from
-- second `from` on. The oldest bucket counts whole until its last instant has left the minute, so
-- the error is on the side of refusing. A bucket lies at most BUCKETS seconds after `from`: nothing
-- is added before `tokens_in` has run.
local function token_window(tenant, owner) return tenant .. SUFFIX.token_window .. owner end

-- Let a window count from second `first` on; return its sum.
local function forget_tokens(window, sum, from, first)
  local seconds, stale = {}, {}
  for second = from, first - 1 do
    seconds[#seconds + 1] = second
  end
  for index, tokens in ipairs(call('HMGET', window, unpack(seconds))) do
    if tokens then
      sum = sum - tonumber(tokens)
      stale[#stale + 1] = seconds[index]
    end
  end
  if #stale > 0 then
    call('HDEL', window, unpack(stale))
  end
  call('HSET', window, 'sum', sum, 'from', first)
  local half_seconds = TOKENS_TTL_MS / 2000
  if math.floor(from / half_seconds) ~= math.floor(first / half_seconds) then
    call('PEXPIRE', window, TOKENS_TTL_MS)
  end
  return sum
end

-- Return the tokens of the minute before now, and those of this second: nil where there is no
-- window yet.
local function tokens_in(window, now)
  local second = math.floor(now / 1000)
  local first = second - BUCKETS
  local sum, from, of_second = unpack(call('HMGET', window, 'sum', 'from', second))
  if not sum then
    return 0, nil
  end
  sum, from = tonumber(sum), tonumber(from)
  if first > from + BUCKETS or second < from then  -- or of a clock that was ahead then
    call('DEL', window)
    return 0, nil
  elseif first > from then
    sum = forget_tokens(window, sum, from, first)
  end
  return sum, tonumber(of_second) or 0
end

-- Add tokens to a window, given what `tokens_in` has found.
local function add_tokens(window, now, sum, of_second, tokens)
  local second = math.floor(now / 1000)
  if of_second then
    call('HSET', window, 'sum', sum + tokens, second, of_second + tokens)
  else
    call('HSET', window, 'sum', tokens, 'from', second - BUCKETS, second, tokens)
    call('PEXPIRE', window, TOKENS_TTL_MS)
  end
end

-- Correct what was added at a time, if that is still in the window.
local function correct_tokens(window, at, more)
  local second = math.floor(at / 1000)
  local sum, from, of_second = unpack(call('HMGET', window, 'sum', 'from', second))
  if sum and second >= tonumber(from) then
    call('HSET', window, 'sum', tonumber(sum) + more, second, (tonumber(of_second) or 0) + more)
  end
end

-- Return when, in ms, so many tokens that are too many for a window will have left it.
local function room_for_tokens(window, too_many, now)
  local second, seconds = math.floor(now / 1000), {}
  for each = second - BUCKETS, second do
    seconds[#seconds + 1] = each
  end
  for index, tokens in ipairs(call('HMGET', window, unpack(seconds))) do
    too_many = too_many - (tonumber(tokens) or 0)
    if too_many <= 0 then
      return (second + index) * 1000
    end
  end
  return now + MINUTE_MS
end
