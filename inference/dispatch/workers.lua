-- Workers: their leases, names and free slots, and what the dead leave behind: register, beat,
-- leave, held, reap. Third part of the dispatch library.
--
-- Each worker's slots and credit stand in a sorted set, their sums in the scheduler's hash; both
-- change together, here and nowhere else, so that the sums cannot drift.

local LONG_DEAD_MS = 600000        -- a worker that was silent for so long is forgotten
local STEP_HISTORY = 0.3           -- weight of the newest step in its average
local SLOW = 1.5                   -- times another's step: from here on a worker is given less

-- Return the time of a worker's last call; minus the time of fencing, if it was fenced; nil of one
-- that is unknown.
local function heartbeat_of(prefix, worker_id)
  return tonumber(redis.call('ZSCORE', prefix .. ':heartbeats', worker_id))
end

-- Return whether a worker holds its lease; one that does not is given nothing.
local function is_live(pool, worker_id)
  local heartbeat = heartbeat_of(pool.prefix, worker_id)
  return heartbeat ~= nil and heartbeat > pool.now - WORKER_LEASE_MS
end

-- Set a worker's part of a sum, or remove it (nil).
local function set_part(pool, name, field, worker_id, count)
  local key = pool.prefix .. ':' .. name
  local before = tonumber(redis.call('ZSCORE', key, worker_id))
  if count == nil then
    redis.call('ZREM', key, worker_id)
  elseif count ~= before then
    redis.call('ZADD', key, count, worker_id)
  end
  add(pool, field, (count or 0) - (before or 0))
end

-- Return how many sequences a worker holds: one of each request, and what wide ones have beyond it.
local function sequences_held(pool, worker_id)
  return redis.call('SCARD', pool.prefix .. ':running:' .. worker_id)
    + get(pool, 'extra:' .. worker_id)
end

-- Count a request of so many sequences among those that a worker holds.
local function hold_request(pool, worker_id, request_id, sequences)
  local is_new = redis.call('SADD', pool.prefix .. ':running:' .. worker_id, request_id) == 1
  if is_new and sequences > 1 then
    add(pool, 'extra:' .. worker_id, sequences - 1)
  end
end

-- Take a request from those that a worker holds.
local function release_request(pool, worker_id, request_id, sequences)
  local was_held = redis.call('SREM', pool.prefix .. ':running:' .. worker_id, request_id) == 1
  if was_held and sequences > 1 then
    add(pool, 'extra:' .. worker_id, -(sequences - 1))
  end
end

-- Set how many sequences a worker may still be given; nil: it is given nothing.
local function set_credit(pool, worker_id, credit)
  set_part(pool, 'free-slots', 'free', worker_id, credit)
end

-- Set how many slots a worker has; nil: it counts for nothing.
local function set_slots(pool, worker_id, slots)
  set_part(pool, 'slots', 'slots', worker_id, slots)
end

-- Set how many tokens a worker's KV cache holds.
local function set_kv(pool, worker_id, tokens)
  add(pool, 'kv', tokens - get(pool, 'kv:' .. worker_id))
  set(pool, 'kv:' .. worker_id, tokens)
end

-- Take a worker's slots and KV cache out of the sums; it is given nothing until it claims again.
local function bench_worker(pool, worker_id)
  set_credit(pool, worker_id, nil)
  set_slots(pool, worker_id, nil)
  set_kv(pool, worker_id, 0)
end

-- A worker's pace -------------------------------------------------------------------------------

-- Note how long a step of a worker's engine takes, beside how many sequences it holds.
local function note_step(pool, worker_id, step_us)
  if step_us > 0 then
    remember(pool, 'step_us:' .. worker_id, step_us, STEP_HISTORY)
    set(pool, 'load:' .. worker_id, sequences_held(pool, worker_id))
  end
end

-- Return how many of its slots a worker is given. One whose steps take longer than those of another
-- that bears at least half as much has fewer, by the square of that, so that of all requests few
-- meet the slow one.
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

-- Leases ----------------------------------------------------------------------------------------

-- Shut a worker out for good: another process has its name.
local function fence(pool, worker_id)
  redis.call('ZADD', pool.prefix .. ':heartbeats', -pool.now, worker_id)
  bench_worker(pool, worker_id)
  redis.call('DEL', pool.prefix .. ':inbox:' .. worker_id)
end

-- Remove all that is kept of a worker.
local function forget_worker(pool, worker_id)
  local prefix = pool.prefix
  bench_worker(pool, worker_id)
  redis.call('ZREM', prefix .. ':heartbeats', worker_id)
  redis.call('HDEL', prefix .. ':workers', worker_id)
  redis.call('DEL', prefix .. ':inbox:' .. worker_id, prefix .. ':adapters:' .. worker_id)
  for _, field in ipairs({ 'kv:', 'kv_used:', 'step_us:', 'load:', 'extra:' }) do
    pool.values[field .. worker_id], pool.changed[field .. worker_id] = nil, nil
    redis.call('HDEL', pool.key, field .. worker_id)
  end
  local name = string.match(worker_id, '^(.*)#') or worker_id
  if redis.call('HGET', prefix .. ':names', name) == worker_id then
    redis.call('HDEL', prefix .. ':names', name)
  end
end

-- Return the error that stops a fenced worker.
local function fenced_error(worker_id)
  return redis.error_reply('FENCED another process has taken the name of worker ' .. worker_id)
end

-- Renew a worker's lease and publish its description; return an error reply, or nil.
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

-- Return the inbox message that gives a worker an attempt.
local function assignment(request_id, attempt, envelope)
  return 'assign ' .. request_id .. ' ' .. attempt .. '\n' .. envelope
end

-- Ask a worker to stop an attempt, by a message that begins with `cancel` or `preempt`.
local function stop_attempt(prefix, worker_id, word, request_id, attempt)
  redis.call('RPUSH', prefix .. ':inbox:' .. worker_id,
    word .. ' ' .. request_id .. ' ' .. attempt .. '\n')
end

-- Calls -----------------------------------------------------------------------------------------

-- Register a worker's process under its name, and fence any earlier one.
-- Reply: the ids of the processes that this call fenced.
local function register(keys, args)
  local prefix, worker_id, name, info, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
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
  redis.call('HSET', prefix .. ':workers', worker_id, info)
  redis.call('ZADD', prefix .. ':heartbeats', pool.now, worker_id)
  save(pool)
  return fenced
end

-- Renew a worker's lease from beside its event loop, which last ran `loop_age_ms` ago. A worker whose
-- loop is stale is busy, not dead: it keeps what it holds, and is given nothing until it claims.
-- Reply: OK.
local function beat(keys, args)
  local prefix, worker_id, info, loop_age_ms, now = keys[1], unpack(args)
  now = now_ms(now)
  local refused = renew_lease(prefix, worker_id, info, now)
  if refused then
    return refused
  end
  if tonumber(loop_age_ms) > STALE_LOOP_MS then
    local pool = open_pool(prefix, now)
    bench_worker(pool, worker_id)
    save(pool)
  end
  return redis.status_reply('OK')
end

-- Remove a worker that has drained. Reply: OK.
local function leave(keys, args)
  local prefix, worker_id, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
  forget_worker(pool, worker_id)
  save(pool)
  return redis.status_reply('OK')
end

-- Return every attempt that a worker holds, for one that may have lost an answer of `claim` or a
-- message of its inbox when its connection broke. Reply: inbox messages.
local function held(keys, args)
  local prefix, worker_id = keys[1], unpack(args)
  local messages = {}
  for _, request_id in ipairs(redis.call('SMEMBERS', prefix .. ':running:' .. worker_id)) do
    local attempt, envelope = unpack(redis.call('HMGET', request_key(prefix, request_id), 'attempt',
      'envelope'))
    if attempt and envelope then
      messages[#messages + 1] = assignment(request_id, attempt, envelope)
    end
  end
  return messages
end

-- Add a request to those that `reap` found, unless it is another gateway's; return whether it is in
-- the state in which it was listed.
local function add_found(found, prefix, request_id, listed_state, only_gateway)
  local attempt, state, gateway, worker_id, envelope = unpack(redis.call('HMGET',
    request_key(prefix, request_id), 'attempt', 'state', 'gateway', 'worker', 'envelope'))
  if state ~= listed_state then
    return false
  end
  if only_gateway == '' or only_gateway == gateway then
    found[#found + 1] = { request_id, tonumber(attempt), state, gateway, worker_id, envelope or '' }
  end
  return true
end

-- Add what dead and fenced workers hold, bench them, and forget those that are long dead.
local function find_lost(pool, found, lease_ms, limit, only_gateway)
  local prefix = pool.prefix
  local dead = redis.call('ZRANGEBYSCORE', prefix .. ':heartbeats', '-inf',
    '(' .. string.format('%.0f', pool.now - lease_ms), 'WITHSCORES')
  for index = 1, #dead, 2 do
    local worker_id, heartbeat = dead[index], tonumber(dead[index + 1])
    local running = prefix .. ':running:' .. worker_id
    if lease_ms >= WORKER_LEASE_MS then
      bench_worker(pool, worker_id)
    end
    for _, request_id in ipairs(redis.call('SMEMBERS', running)) do
      if #found < limit and not add_found(found, prefix, request_id, 'running', only_gateway) then
        local sequences = redis.call('HGET', request_key(prefix, request_id), 'sequences')
        release_request(pool, worker_id, request_id, tonumber(sequences) or 1)
      end
    end
    if pool.now - math.abs(heartbeat) > LONG_DEAD_MS and redis.call('EXISTS', running) == 0 then
      forget_worker(pool, worker_id)
    end
  end
end

-- Add what is queued, or was withdrawn, beyond its deadline and the grace.
local function find_overdue(pool, found, grace_ms, limit, only_gateway)
  local prefix = pool.prefix
  for _, name in ipairs({ ':queue', ':withdrawn' }) do
    local overdue = redis.call('ZRANGEBYSCORE', prefix .. name, '-inf',
      '(' .. string.format('%.0f', pool.now - grace_ms), 'LIMIT', 0, limit)
    for _, request_id in ipairs(overdue) do
      if #found < limit and not add_found(found, prefix, request_id, 'queued', only_gateway) then
        redis.call('ZREM', prefix .. name, request_id)
      end
    end
  end
end

-- Find the requests that somebody has to end: held by a dead or fenced worker, or queued beyond
-- their deadline and the grace. With a gateway (not '') only its own. Changes no request, but takes
-- dead workers' slots out of the sums.
-- Reply: {request_id, attempt, state, gateway, worker_id, envelope} of each, at most `limit`.
local function reap(keys, args)
  local prefix, lease_ms, grace_ms, limit, only_gateway, now = keys[1], unpack(args)
  local pool, found = open_pool(prefix, now_ms(now)), {}
  limit = tonumber(limit)
  find_lost(pool, found, tonumber(lease_ms), limit, only_gateway)
  find_overdue(pool, found, tonumber(grace_ms), limit, only_gateway)
  save(pool)
  return found
end
