-- Gateways: their signs of life, and what each has waiting. Nothing waits behind the dead: what a
-- silent gateway has asked for is not started, and ends once the gateway is gone. Part of the
-- dispatch library.
--
-- `gateways` scores each by its last sign of life in ms; one that was found silent, by minus the time
-- since when it is missed. `waiting:<gateway>` has all of its requests that are queued, those that
-- have left the queue without having ended too, by the time until which they may wait.

local GONE_AFTER_MS = 5000         -- missed for so long, without a sign of life, a gateway is gone
local LONG_GONE_MS = 86400000      -- and after so long it is forgotten
local MOST_BROUGHT_BACK = 256      -- requests, in one call

-- Note a sign of life of a gateway.
local function note_gateway(pool, gateway)
  redis.call('ZADD', pool.prefix .. SUFFIX.gateways, pool.now, gateway)
end

-- Note a gateway that somebody else has told of; one that is not known here counts as seen now.
local function meet_gateway(pool, gateway)
  redis.call('ZADD', pool.prefix .. SUFFIX.gateways, 'NX', pool.now, gateway)
end

-- Return whether a gateway has given no sign of life for so long that nobody may read its answers.
local function is_silent(pool, gateway)
  pool.is_silent = pool.is_silent or {}
  if pool.is_silent[gateway] == nil then
    local seen_ms = tonumber(redis.call('ZSCORE', pool.prefix .. SUFFIX.gateways, gateway))
    pool.is_silent[gateway] = (seen_ms or pool.now) <= pool.now - GATEWAY_LEASE_MS
  end
  return pool.is_silent[gateway]
end

-- Return whether a gateway is gone: silent, missed since an earlier call and silent ever since. So a
-- Redis that stood still, whose first caller finds everybody silent, makes nobody gone.
local function is_gone(pool, gateway)
  local key = pool.prefix .. SUFFIX.gateways
  local seen_ms = tonumber(redis.call('ZSCORE', key, gateway)) or pool.now
  if seen_ms > pool.now - GATEWAY_LEASE_MS then
    return false
  elseif seen_ms > 0 then
    redis.call('ZADD', key, -pool.now, gateway)
    return false
  end
  return pool.now + seen_ms >= GONE_AFTER_MS
end

-- Forget what was set aside for a gateway that is gone; and, where it was missed long ago, itself.
local function forget_gone(pool, gateway)
  local key = pool.prefix .. SUFFIX.gateways
  redis.call('DEL', pool.prefix .. ':set-aside:' .. gateway)
  local seen_ms = tonumber(redis.call('ZSCORE', key, gateway)) or 0
  if pool.now + seen_ms > LONG_GONE_MS then
    redis.call('ZREM', key, gateway)
  end
end

-- What waits of a gateway -----------------------------------------------------------------------

-- Note that a request of a gateway is queued, and may wait until then.
local function begin_waiting(pool, gateway, request_id, expires_ms)
  redis.call('ZADD', pool.prefix .. SUFFIX.gateway_waiting .. gateway, expires_ms, request_id)
end

-- Note that a request of a gateway is queued no longer: it was started, or has ended.
local function end_waiting(pool, gateway, request_id)
  redis.call('ZREM', pool.prefix .. SUFFIX.gateway_waiting .. gateway, request_id)
end

-- Set a request of a silent gateway aside, which has left the queue.
local function set_aside(pool, gateway, request_id)
  local key = pool.prefix .. ':set-aside:' .. gateway
  redis.call('RPUSH', key, request_id)
  redis.call('PEXPIRE', key, LONG_GONE_MS)
end

-- Put requests that were set aside back into the queue: their gateway was silent and is not gone.
local function bring_back(pool, gateway)
  local prefix = pool.prefix
  local set_aside_ids = redis.call('LPOP', prefix .. ':set-aside:' .. gateway, MOST_BROUGHT_BACK)
  for _, request_id in ipairs(set_aside_ids or {}) do
    local state, path_text, deadline_ms, expires_ms, cancelled, adapter = unpack(redis.call('HMGET',
      request_key(prefix, request_id), 'state', 'path', 'deadline_ms', 'expires_ms', 'cancelled',
      'adapter'))
    local may_wait = state == 'queued' and not cancelled and tonumber(expires_ms) > pool.waiting_now
    if may_wait
      and redis.call('ZADD', prefix .. SUFFIX.queue, 'NX', expires_ms, request_id) == 1 then
      local path = parse_path(path_text)
      local flow = open_flow(pool, path)
      add_waiting(pool, path, flow, request_id, deadline_ms, adapter)
      save(flow)
    end
  end
end
