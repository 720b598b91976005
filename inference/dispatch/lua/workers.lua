-- Workers: their leases, names and free slots: beat, leave, held. What the dead leave behind is in
-- dead.lua. Part of the dispatch library.
--
-- Each worker's slots and credit stand in a sorted set, the rest in a hash of its own, the sums in
-- the scheduler's hash; a part and its sum change together, here and nowhere else, so that the sums
-- cannot drift and no call has to look at all workers.

local STEP_HISTORY = 0.3           -- weight of the newest step in its average
local SLOW = 1.5                   -- times another's step: from here on a worker is given less
local LOAD_SPAN = 2 ^ 30           -- microseconds: in `paces` a step counts less than one rung
local PAUSE_MS = WORKER_LEASE_MS / 2  -- without any call, though many are made each second
local TICK_MS = 500                -- how exactly the time of the last call is known

local forget_adapters, drop_levels  -- in adapters.lua, which builds on this file

-- Return the time of a worker's last call; minus the time of fencing, if it was fenced; nil of one
-- that is unknown.
local function heartbeat_of(prefix, worker_id)
  return tonumber(redis.call('ZSCORE', prefix .. SUFFIX.heartbeats, worker_id))
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
  return redis.call('SCARD', pool.prefix .. SUFFIX.worker_requests .. worker_id)
    + get(worker_of(pool, worker_id), 'extra')
end

-- Count a request of so many sequences among those that a worker holds.
local function hold_request(pool, worker_id, request_id, sequences)
  local held = pool.prefix .. SUFFIX.worker_requests .. worker_id
  local is_new = redis.call('SADD', held, request_id) == 1
  if is_new and sequences > 1 then
    add(worker_of(pool, worker_id), 'extra', sequences - 1)
  end
end

-- Take a request from those that a worker holds.
local function release_request(pool, worker_id, request_id, sequences)
  local held = pool.prefix .. SUFFIX.worker_requests .. worker_id
  local was_held = redis.call('SREM', held, request_id) == 1
  if was_held and sequences > 1 then
    add(worker_of(pool, worker_id), 'extra', -(sequences - 1))
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
  local worker = worker_of(pool, worker_id)
  add(pool, 'kv', tokens - get(worker, 'kv'))
  set(worker, 'kv', tokens)
end

-- Take a worker's slots and KV cache out of the sums; it is given nothing until it claims again.
local function bench_worker(pool, worker_id)
  set_credit(pool, worker_id, nil)
  set_slots(pool, worker_id, nil)
  if get(worker_of(pool, worker_id), 'kv') > 0 then
    set_kv(pool, worker_id, 0)
  end
end

-- A worker's pace -------------------------------------------------------------------------------

-- Return the rung of a load, four to each doubling: as exact as "half as much" has to be.
local function rung_of(load)
  return math.floor(4 * math.log(load + 1) / math.log(2))
end

-- Note how long a step of a worker's engine takes, beside how many sequences it holds; `paces` has
-- all workers in the order of their loads' rungs, then of steps.
local function note_step(pool, worker_id, step_us)
  if step_us > 0 then
    local worker = worker_of(pool, worker_id)
    remember(worker, 'step_us', math.min(step_us, LOAD_SPAN - 1), STEP_HISTORY)
    set(worker, 'load', sequences_held(pool, worker_id))
    redis.call('ZADD', pool.prefix .. SUFFIX.paces,
      rung_of(get(worker, 'load')) * LOAD_SPAN + get(worker, 'step_us'), worker_id)
  end
end

-- Return the shortest step of all live workers that bear at least about so much load, if it is less
-- than `step`. Looks at one worker of each rung, so at few however many there are; a dead one that
-- is met is not met again until it reports.
local function fastest_step(pool, load, step)
  local key, from = pool.prefix .. SUFFIX.paces, rung_of(load) * LOAD_SPAN
  while true do
    local worker_id, score = unpack(redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES',
      'LIMIT', 0, 1))
    if not worker_id then
      return step
    end
    local rung = math.floor(tonumber(score) / LOAD_SPAN)
    local other_step = tonumber(score) - rung * LOAD_SPAN
    if other_step < step and not is_live(pool, worker_id) then
      redis.call('ZREM', key, worker_id)
    else
      step = math.min(step, other_step)
      from = (rung + 1) * LOAD_SPAN
    end
  end
end

-- Return how many of its slots a worker is given. One whose steps take longer than those of another
-- that bears at least half as much has fewer, by the square of that, so that of all requests few
-- meet the slow one.
local function paced_slots(pool, worker_id, slots)
  local worker = worker_of(pool, worker_id)
  local step = get(worker, 'step_us')
  if step == 0 then
    return slots
  end
  local fastest = fastest_step(pool, get(worker, 'load') / 2, step)
  if step <= SLOW * fastest then
    return slots
  end
  return math.min(slots, math.max(1, math.floor(slots * (fastest / step) ^ 2)))
end

-- Pauses ----------------------------------------------------------------------------------------

-- Date signs of life from before the clock was set back from now on, so that they do not last until
-- it is as late again, and since when somebody is missed.
local function turn_back(pool)
  local now = string.format('%.0f', pool.now)
  for _, name in ipairs{ 'heartbeats', 'gateways', 'active' } do
    local key = pool.prefix .. ':' .. name
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. now, '+inf')) do
      redis.call('ZADD', key, now, id)
    end
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', '(-' .. now)) do
      redis.call('ZADD', key, '-' .. now, id)
    end
  end
end

-- Note a call that somebody makes every second, and whether it is a worker's heartbeat. Where none
-- came for PAUSE_MS, it was Redis or the way to it that stood still, or its clock was set: then no
-- worker is lost for another lease. Once, until a worker was heard of again: of workers and
-- gateways that died together only a sweeper is left, which calls more rarely.
local function note_call(pool, is_heartbeat)
  local since, heard = pool.now - get(pool, 'tick'), get(pool, 'heard')
  if since < -PAUSE_MS then
    turn_back(pool)
    set(pool, 'resumed', pool.now)
  elseif since > PAUSE_MS and heard > get(pool, 'resumed') then
    set(pool, 'resumed', pool.now)
  end
  set(pool, 'skipped', pool.skipped)
  if math.abs(since) > TICK_MS then
    set(pool, 'tick', pool.now)
  end
  if is_heartbeat and math.abs(pool.now - heard) > TICK_MS then
    set(pool, 'heard', pool.now)
  end
end

-- Return whether the pool goes on after a pause, and those who have not called yet still may.
local function is_resuming(pool, lease_ms)
  return get(pool, 'resumed') > pool.now - lease_ms
end

-- Leases ----------------------------------------------------------------------------------------

-- Shut a worker out for good: another process has its name.
local function fence(pool, worker_id)
  redis.call('ZADD', pool.prefix .. SUFFIX.heartbeats, -pool.now, worker_id)
  bench_worker(pool, worker_id)
  drop_levels(pool, worker_id)
  redis.call('ZREM', pool.prefix .. SUFFIX.paces, worker_id)
  redis.call('DEL', pool.prefix .. SUFFIX.inbox .. worker_id)
end

-- Remove all that is kept of a worker.
local function forget_worker(pool, worker_id)
  local prefix = pool.prefix
  bench_worker(pool, worker_id)
  forget_adapters(pool, worker_id)
  redis.call('ZREM', prefix .. SUFFIX.heartbeats, worker_id)
  redis.call('ZREM', prefix .. ':handed-out', worker_id)
  redis.call('ZREM', prefix .. SUFFIX.paces, worker_id)
  redis.call('HDEL', prefix .. SUFFIX.workers, worker_id)
  redis.call('DEL', prefix .. SUFFIX.inbox .. worker_id,
    prefix .. SUFFIX.worker_numbers .. worker_id)
  pool.workers[worker_id] = nil
  local name = string.match(worker_id, '^(.*)#') or worker_id
  if redis.call('HGET', prefix .. SUFFIX.worker_names, name) == worker_id then
    redis.call('HDEL', prefix .. SUFFIX.worker_names, name)
    redis.call('SREM', prefix .. SUFFIX.workers_resynced, name)
  end
end

-- Return the error that stops a fenced worker.
local function fenced_error(worker_id)
  return redis.error_reply('FENCED another process has taken the name of worker ' .. worker_id)
end

-- Return the error reply to a worker that is unknown or fenced, or nil.
local function lease_error(prefix, worker_id)
  local heartbeat = heartbeat_of(prefix, worker_id)
  if not heartbeat then
    return redis.error_reply('UNKNOWN worker ' .. worker_id .. ' has to register first')
  end
  return heartbeat < 0 and fenced_error(worker_id) or nil
end

-- Renew a worker's lease and publish its description; return an error reply, or nil.
local function renew_lease(prefix, worker_id, info, now)
  local refused = lease_error(prefix, worker_id)
  if not refused then
    redis.call('ZADD', prefix .. SUFFIX.heartbeats, now, worker_id)
    redis.call('HSET', prefix .. SUFFIX.workers, worker_id, info)
  end
  return refused
end

-- Return the inbox message that gives a worker an attempt.
local function assignment(request_id, attempt, envelope)
  return 'assign ' .. request_id .. ' ' .. attempt .. '\n' .. envelope
end

-- Calls -----------------------------------------------------------------------------------------

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

-- Remove a worker that has drained. One that leaves requests behind is fenced instead, so that they
-- are found at once. Reply: OK.
local function leave(keys, args)
  local prefix, worker_id, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
  if redis.call('EXISTS', prefix .. SUFFIX.worker_requests .. worker_id) == 1 then
    fence(pool, worker_id)
  else
    forget_worker(pool, worker_id)
  end
  save(pool)
  return redis.status_reply('OK')
end

-- Return every attempt that a worker holds, for one that may have lost an answer of `claim` or a
-- message of its inbox when its connection broke. Reply: inbox messages.
local function held(keys, args)
  local prefix, worker_id = keys[1], unpack(args)
  local messages = {}
  local requests = prefix .. SUFFIX.worker_requests .. worker_id
  for _, request_id in ipairs(redis.call('SMEMBERS', requests)) do
    local attempt, envelope = unpack(redis.call('HMGET', request_key(prefix, request_id), 'attempt',
      'envelope'))
    if attempt and envelope then
      messages[#messages + 1] = assignment(request_id, attempt, envelope)
    end
  end
  return messages
end
