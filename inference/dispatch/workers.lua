-- Workers: their leases, names and free slots, and what the dead leave behind: register, leave,
-- held, reap. Third part of the dispatch library.
--
-- Each worker's slots and credit stand in a sorted set, their sums in the scheduler's hash; both
-- change together, here and nowhere else, so that the sums cannot drift.

local LONG_DEAD_MS = 600000        -- a worker that was silent for so long is forgotten
local STEP_HISTORY = 0.3           -- weight of the newest step in its average
local SLOW = 1.5                   -- times another's step: from here on a worker is given less

-- Heartbeats: the time of the last call; below zero, minus the time of fencing.
local function heartbeat_of(prefix, worker_id)
  return tonumber(redis.call('ZSCORE', prefix .. ':heartbeats', worker_id))
end

local function is_live(pool, worker_id)
  local heartbeat = heartbeat_of(pool.prefix, worker_id)
  return heartbeat ~= nil and heartbeat > pool.now - WORKER_LEASE_MS
end

local function set_share(pool, name, field, worker_id, count)
  local key = pool.prefix .. ':' .. name
  local before = tonumber(redis.call('ZSCORE', key, worker_id))
  if count == nil then
    redis.call('ZREM', key, worker_id)
  elseif count ~= before then
    redis.call('ZADD', key, count, worker_id)
  end
  add(pool, field, (count or 0) - (before or 0))
end

-- nil: it is given nothing.
local function set_credit(pool, worker_id, credit)
  set_share(pool, 'free-slots', 'free', worker_id, credit)
end

local function set_slots(pool, worker_id, slots)
  set_share(pool, 'slots', 'slots', worker_id, slots)
end

local function set_kv(pool, worker_id, tokens)
  add(pool, 'kv', tokens - get(pool, 'kv:' .. worker_id))
  set(pool, 'kv:' .. worker_id, tokens)
end

local function bench_worker(pool, worker_id)
  set_credit(pool, worker_id, nil)
  set_slots(pool, worker_id, nil)
  set_kv(pool, worker_id, 0)
end

-- A worker's pace ---------------------------------------------------------------------------------

-- Notes how long a step of its engine takes, beside how many requests it holds.
local function note_step(pool, worker_id, step_us)
  if step_us > 0 then
    remember(pool, 'step_us:' .. worker_id, step_us, STEP_HISTORY)
    set(pool, 'load:' .. worker_id, redis.call('SCARD', pool.prefix .. ':running:' .. worker_id))
  end
end

-- The slots of a worker whose steps take longer than those of one that bears at least half as much:
-- fewer by the square of that, so that of all requests few meet the slow one.
local function paced_slots(pool, worker_id, slots)
  local step, load = get(pool, 'step_us:' .. worker_id), get(pool, 'load:' .. worker_id)
  local fastest = step
  for field, other in pairs(pool.values) do
    local other_id = string.match(field, '^step_us:(.*)$')
    if other_id and other > 0 and other < fastest and get(pool, 'load:' .. other_id) >= load / 2
      and is_live(pool, other_id) then
      fastest = other
    end
  end
  if step <= SLOW * fastest then
    return slots
  end
  return math.min(slots, math.max(1, math.floor(slots * (fastest / step) ^ 2)))
end

local function fence(pool, worker_id)
  redis.call('ZADD', pool.prefix .. ':heartbeats', -pool.now, worker_id)
  bench_worker(pool, worker_id)
  redis.call('DEL', pool.prefix .. ':inbox:' .. worker_id)
end

local function forget_worker(pool, worker_id)
  local prefix = pool.prefix
  bench_worker(pool, worker_id)
  redis.call('ZREM', prefix .. ':heartbeats', worker_id)
  redis.call('HDEL', prefix .. ':workers', worker_id)
  redis.call('DEL', prefix .. ':inbox:' .. worker_id, prefix .. ':adapters:' .. worker_id)
  for _, field in ipairs({ 'kv:', 'kv_used:', 'step_us:', 'load:' }) do
    pool.values[field .. worker_id], pool.changed[field .. worker_id] = nil, nil
    redis.call('HDEL', pool.key, field .. worker_id)
  end
  local name = string.match(worker_id, '^(.*)#') or worker_id
  if redis.call('HGET', prefix .. ':names', name) == worker_id then
    redis.call('HDEL', prefix .. ':names', name)
  end
end

local function fenced_error(worker_id)
  return redis.error_reply('FENCED another process has taken the name of worker ' .. worker_id)
end

-- Renews the lease and publishes the worker's description. -> an error reply, or nil.
local function renew_lease(prefix, worker_id, info, now)
  local heartbeat = heartbeat_of(prefix, worker_id)
  if not heartbeat then
    return redis.error_reply('UNKNOWN worker ' .. worker_id .. ' has to register first')
  elseif heartbeat < 0 then
    return fenced_error(worker_id)
  end
  redis.call('ZADD', prefix .. ':heartbeats', now, worker_id)
  redis.call('HSET', prefix .. ':workers', worker_id, info)
  return nil
end

local function assignment(request_id, attempt, envelope)
  return 'assign ' .. request_id .. ' ' .. attempt .. '\n' .. envelope
end

-- Calls ---------------------------------------------------------------------------------------

-- ARGV: worker_id worker_name info [now] -> ids of the earlier incarnations that this call fenced
local function register(keys, args)
  local prefix, worker_id, name = keys[1], args[1], args[2]
  local pool = open_pool(prefix, time_or(args[4]))
  local heartbeat = heartbeat_of(prefix, worker_id)
  if heartbeat and heartbeat < 0 then
    return fenced_error(worker_id)
  end
  local fenced = {}
  local earlier = redis.call('HGET', prefix .. ':names', name)
  if earlier and earlier ~= worker_id then
    fence(pool, earlier)
    fenced[1] = earlier
  end
  redis.call('HSET', prefix .. ':names', name, worker_id)
  redis.call('HSET', prefix .. ':workers', worker_id, args[3])
  redis.call('ZADD', prefix .. ':heartbeats', pool.now, worker_id)
  save(pool)
  return fenced
end

-- ARGV: worker_id [now]. A worker that has drained leaves at once.
local function leave(keys, args)
  local pool = open_pool(keys[1], time_or(args[2]))
  forget_worker(pool, args[1])
  save(pool)
  return redis.status_reply('OK')
end

-- ARGV: worker_id -> inbox messages of every attempt the worker holds. For a worker that may have
-- lost an answer of claim or a message of its inbox when its connection broke.
local function held(keys, args)
  local messages = {}
  for _, request_id in ipairs(redis.call('SMEMBERS', keys[1] .. ':running:' .. args[1])) do
    local fields = redis.call('HMGET', request_key(keys[1], request_id), 'attempt', 'envelope')
    if fields[1] and fields[2] then
      messages[#messages + 1] = assignment(request_id, fields[1], fields[2])
    end
  end
  return messages
end

-- ARGV: lease_ms grace_ms limit gateway_id('' for all) [now] -> {request_id, attempt, state,
-- gateway, worker, envelope} of requests that somebody has to end: held by a dead or fenced worker,
-- or queued beyond deadline + grace. With a gateway id, only that gateway's. Changes no request,
-- but takes dead workers' slots out of the count, and forgets those that are long dead.
local function reap(keys, args)
  local prefix, limit, gateway = keys[1], tonumber(args[3]), args[4]
  local pool = open_pool(prefix, time_or(args[5]))
  local found = {}

  local function look_at(request_id, expected_state)
    local fields = redis.call('HMGET', request_key(prefix, request_id), 'attempt', 'state',
      'gateway', 'worker', 'envelope')
    if fields[2] == expected_state then
      if gateway == '' or gateway == fields[3] then
        found[#found + 1] = { request_id, tonumber(fields[1]), fields[2], fields[3], fields[4],
          fields[5] or '' }
      end
      return true
    end
    return false
  end

  local dead = redis.call('ZRANGEBYSCORE', prefix .. ':heartbeats', '-inf',
    '(' .. string.format('%.0f', pool.now - tonumber(args[1])), 'WITHSCORES')
  for index = 1, #dead, 2 do
    local worker_id, running = dead[index], prefix .. ':running:' .. dead[index]
    if tonumber(args[1]) >= WORKER_LEASE_MS then
      bench_worker(pool, worker_id)
    end
    for _, request_id in ipairs(redis.call('SMEMBERS', running)) do
      if #found < limit and not look_at(request_id, 'running') then
        redis.call('SREM', running, request_id)
      end
    end
    if pool.now - math.abs(tonumber(dead[index + 1])) > LONG_DEAD_MS
      and redis.call('EXISTS', running) == 0 then
      forget_worker(pool, worker_id)
    end
  end

  for _, name in ipairs({ ':queue', ':withdrawn' }) do
    local overdue = redis.call('ZRANGEBYSCORE', prefix .. name, '-inf',
      '(' .. string.format('%.0f', pool.now - tonumber(args[2])), 'LIMIT', 0, limit)
    for _, request_id in ipairs(overdue) do
      if #found < limit and not look_at(request_id, 'queued') then
        redis.call('ZREM', prefix .. name, request_id)
      end
    end
  end
  save(pool)
  return found
end
