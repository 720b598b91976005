#!lua name=penstock_admission_1
-- What one tenant has reserved: requests a minute and requests at once, for all gateways together.
--
-- Every function takes one key, the tenant's prefix `{t:<tenant>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py. Time is Redis TIME in milliseconds. A reservation
-- never expires by itself: a sweeper asks the pool first.

local WINDOW_MS = 60000
local CONCURRENCY_RETRY_MS = 1000  -- when a slot falls free is unknown: ask again after this

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- ARGV: request_id pool requests_per_minute max_concurrent
-- -> {1} | {0, limit name, used, limit, reset_ms}. Asking again for the same request is free.
local function reserve(keys, args)
  local tenant, request_id, now = keys[1], args[1], now_ms()
  local reservations, window = tenant .. ':reservations', tenant .. ':request-window'
  if redis.call('HEXISTS', reservations, request_id) == 1 then
    return { 1 }
  end
  redis.call('ZREMRANGEBYSCORE', window, '-inf', string.format('%.0f', now - WINDOW_MS))
  local per_minute, concurrent = tonumber(args[3]), tonumber(args[4])
  local used = redis.call('ZCARD', window)
  if used >= per_minute then
    -- The window has room again when this one leaves it.
    local leaving = redis.call('ZRANGE', window, used - per_minute, used - per_minute, 'WITHSCORES')
    local reset = leaving[2] and (tonumber(leaving[2]) + WINDOW_MS - now) or WINDOW_MS
    return { 0, 'requests_per_minute', used, per_minute, reset }
  end
  local open = redis.call('HLEN', reservations)
  if open >= concurrent then
    return { 0, 'concurrent_requests', open, concurrent, CONCURRENCY_RETRY_MS }
  end
  redis.call('HSET', reservations, request_id, string.format('%.0f', now) .. '|' .. args[2])
  redis.call('ZADD', window, now, request_id)
  redis.call('PEXPIRE', window, WINDOW_MS)
  return { 1 }
end

-- ARGV: request_id -> 1 released | 0 nothing was reserved
local function release(keys, args)
  return redis.call('HDEL', keys[1] .. ':reservations', args[1])
end

redis.register_function('penstock_reserve_1', reserve)
redis.register_function('penstock_release_1', release)
