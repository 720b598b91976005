-- Slots: which request gets one, what the wait for one is, and who gives one up. Fifth part of the
-- dispatch library.

local LARGEST_QUEUE = 2            -- times the cap, which is shared out among the tenants
local MOST_PASSED_OVER = 32        -- requests that a worker may not have, in one call
local MOST_OF_A_FLOW = 3           -- of them for want of room, after which their flow is left alone
local MOST_PREEMPTIONS = 2         -- of one request, so that it ends some day
local CANDIDATES = 4               -- workers with credit that are looked at for one request
local UNKNOWN_MS = -1              -- no worker is there, or nothing has ended yet

-- Find the live worker with most credit that has room for so many tokens and for the adapter, one
-- that holds it already before others; return its id or nil. Dead ones are benched on the way.
local function worker_with_credit(pool, tokens, adapter)
  if get(pool, 'free') <= 0 then
    return nil
  end
  local candidates = redis.call('ZREVRANGEBYSCORE', pool.prefix .. ':free-slots', '+inf', '1',
    'LIMIT', 0, CANDIDATES)
  local second
  for _, worker_id in ipairs(candidates) do
    if not is_live(pool, worker_id) then
      bench_worker(pool, worker_id)
    elseif has_kv_for(pool, worker_id, tokens) then
      if adapter == '' or is_resident(pool, worker_id, adapter) then
        return worker_id
      elseif not second and has_adapter_slot(pool, worker_id) then
        second = worker_id
      end
    end
  end
  return second
end

-- Charge a request, whatever it will really take, and give it to the worker; return its assignment.
-- The worker's credit, of which this takes one, is for the caller to write: a slot that is handed
-- on changes nothing.
local function start_attempt(pool, path, flow, request, worker_id)
  local input, output = estimate(pool, flow, request.prompt, request.output)
  local attempt = request.attempt + 1
  charge(pool, path, flow, cost(input, output))
  add(flow, 'running', 1)
  add(flow, 'tokens', input + output)
  save(flow)
  add(pool, path.class .. ':running', 1)
  add(worker_of(pool, worker_id), 'kv_used', input + output)
  note_adapter(pool, worker_id, request.adapter, 1)
  set(pool, path.class .. ':served', pool.now)
  add(pool, 'free', -1)
  redis.call('HSET', request_key(pool.prefix, request.id), 'state', 'running', 'worker', worker_id,
    'attempt', attempt, 'charged_input', input, 'charged_output', output, 'started_ms', pool.now)
  redis.call('SADD', pool.prefix .. ':running:' .. worker_id, request.id)
  if path.class == 'batch' and request.resumable == '1'
    and request.preemptions < MOST_PREEMPTIONS then
    redis.call('ZADD', pool.prefix .. ':preemptible', pool.now, request.id)
  end
  return assignment(request.id, attempt, request.envelope)
end

-- Take an attempt that is over from its worker and its flow. It was charged `tokens`.
local function end_attempt(pool, path, flow, request_id, worker_id, tokens, adapter)
  redis.call('SREM', pool.prefix .. ':running:' .. worker_id, request_id)
  add(pool, path.class .. ':running', -1)
  add(worker_of(pool, worker_id), 'kv_used', -tokens)
  note_adapter(pool, worker_id, adapter, -1)
  if path.class == 'batch' then
    redis.call('ZREM', pool.prefix .. ':preemptible', request_id)
  end
  add(flow, 'running', -1)
  add(flow, 'tokens', -tokens)
end

-- The next request ------------------------------------------------------------------------------

-- Return whether the worker may have a request that is next: it has not been lost with it, and has
-- room for its tokens and its adapter. And whether the worker is to wait for that room and take no
-- other, since enough others went by.
local function may_have(pool, worker_id, path, flow, request, passed_over)
  if string.find(request.excluded, ' ' .. worker_id .. ' ', 1, true) then
    return false
  end
  local input, output = estimate(pool, flow, request.prompt, request.output)
  if not has_kv_for(pool, worker_id, input + output) then
    passed_over[path.flow] = (passed_over[path.flow] or 0) + 1
    return false, request.passes >= MOST_PASSES
  end
  local is_first = not passed_over.for_adapter
  if request.adapter == '' or may_run_adapter(pool, worker_id, request, is_first) then
    return true
  end
  passed_over.for_adapter = true
  passed_over[path.flow] = (passed_over[path.flow] or 0) + 1
  return false
end

-- Take the tenant's first request out of the queue; return it and its path. `is_due`: it may still
-- start.
local function pop_waiting(pool, class, tenant)
  local request_id, path = pop_request(pool, class, tenant)
  redis.call('ZREM', pool.prefix .. ':queue', request_id)
  local state, expires_ms, deadline_ms, attempt, prompt, output, envelope, resumable, excluded,
    preemptions, adapter, passes = unpack(redis.call('HMGET', request_key(pool.prefix, request_id),
      'state', 'expires_ms', 'deadline_ms', 'attempt', 'prompt', 'output', 'envelope', 'resumable',
      'excluded', 'preemptions', 'adapter', 'passes'))
  expires_ms = tonumber(expires_ms) or 0
  return { id = request_id, path = path, is_due = state == 'queued' and expires_ms > pool.now,
    expires_ms = expires_ms, deadline_ms = deadline_ms, attempt = tonumber(attempt),
    prompt = tonumber(prompt), output = tonumber(output), envelope = envelope,
    resumable = resumable, excluded = excluded or '', preemptions = tonumber(preemptions) or 0,
    adapter = adapter or '', passes = tonumber(passes) or 0 }, path
end

-- Start the tenant's first request on the worker; return its assignment, or nil. One that has
-- waited too long is `withdrawn`: whoever ends it finds it there, no worker is given it any more.
-- One that this worker may not have goes to `passed_over`, for the caller to put back.
local function start_first(pool, worker_id, passed_over, class, tenant, least_class, least_tenant)
  local request, path = pop_waiting(pool, class, tenant)
  local flow = open_flow(pool, path)
  add(flow, 'waiting', -1)
  local may_start, is_held = false, false
  if request.is_due then
    may_start, is_held = may_have(pool, worker_id, path, flow, request, passed_over)
  end
  if may_start then
    note_served(pool, path, flow, least_class, least_tenant)
    local message = start_attempt(pool, path, flow, request, worker_id)
    note_left(pool, path)
    return message
  end
  save(flow)
  if request.is_due then
    passed_over[#passed_over + 1] = request
    passed_over.is_held = is_held
  else
    redis.call('ZADD', pool.prefix .. ':withdrawn', request.expires_ms, request.id)
  end
  note_left(pool, path)
  if (passed_over[path.flow] or 0) >= MOST_OF_A_FLOW then
    redis.call('ZREM', pool.prefix .. ':tenants:' .. path.class, path.tenant)
  end
  return nil
end

-- Start the next request on the worker, only of one class where that is given; return its
-- assignment, or nil where there is none that it may have.
local function take_next(pool, worker_id, passed_over, only_class)
  local for_newcomers = is_for_newcomers(pool, worker_id)
  local classes, least_class = waiting_classes(pool)
  for _, class in ipairs(classes) do
    local tenant, least_tenant
    if not only_class or only_class == class.name then
      tenant, least_tenant = next_tenant(pool, class.name, for_newcomers)
    end
    while tenant and #passed_over < MOST_PASSED_OVER and not passed_over.is_held do
      local message = start_first(pool, worker_id, passed_over, class.name, tenant, least_class,
        least_tenant)
      if message then
        return message
      end
      tenant, least_tenant = next_tenant(pool, class.name, for_newcomers)
    end
  end
  return nil
end

-- Start as many requests on the worker as it has credit for, the first of one class if that is
-- given and waits; return their assignments. What was passed over waits where it did.
local function take_up_to(pool, worker_id, credit, first_class)
  local taken, passed_over, only_class = {}, {}, first_class
  while #taken < credit do
    local message = take_next(pool, worker_id, passed_over, only_class)
    if message then
      taken[#taken + 1] = message
    elseif not only_class then
      break
    end
    only_class = nil
  end
  for _, each in ipairs(passed_over) do
    redis.call('HINCRBY', request_key(pool.prefix, each.id), 'passes', math.max(1, #taken))
    local flow = open_flow(pool, each.path)
    put_back(pool, each.path, flow, each.id, each.deadline_ms)
    save(flow)
    redis.call('ZADD', pool.prefix .. ':queue', each.expires_ms, each.id)
  end
  return taken
end

-- Send messages to a worker of which this many slots were freed.
local function hand_over(pool, worker_id, messages, freed)
  if #messages > 0 then
    redis.call('RPUSH', pool.prefix .. ':inbox:' .. worker_id, unpack(messages))
  end
  if freed ~= #messages then
    redis.call('ZINCRBY', pool.prefix .. ':free-slots', freed - #messages, worker_id)
  end
end

-- Give the slot of an attempt that is over to the next in the queue, one of `first_class` before
-- all others, else back to the worker's credit.
local function free_slot(pool, worker_id, first_class)
  local prefix = pool.prefix
  local before = tonumber(redis.call('ZSCORE', prefix .. ':free-slots', worker_id))
  if not before then
    return
  elseif not is_live(pool, worker_id) then
    return bench_worker(pool, worker_id)
  end
  local slots = tonumber(redis.call('ZSCORE', prefix .. ':slots', worker_id))
  -- None is freed while a worker that posted fewer slots than before still holds more than those.
  local credit = math.max(0, slots - redis.call('SCARD', prefix .. ':running:' .. worker_id))
  add(pool, 'free', credit - before)
  hand_over(pool, worker_id, take_up_to(pool, worker_id, credit, first_class), credit - before)
end

-- The wait for a slot ---------------------------------------------------------------------------

-- Return whether the queue is full for a flow: a full queue refuses who already has its share of
-- it, so that one tenant cannot keep the others out.
local function is_full_for(pool, flow, length, most)
  if length < most then
    return false
  end
  local share = most * get(flow, 'share') / math.max(get(pool, 'weights'), get(flow, 'share'))
  return get(flow, 'waiting') >= math.floor(share) or length >= LARGEST_QUEUE * most
end

-- Return the position of one more request of the flow, 0 where it need not wait, and its wait in
-- ms, or UNKNOWN_MS. Each of the flow's requests lets others by in proportion to their shares;
-- slots become free one after another, each after the mean time that a request holds one.
local function forecast_wait(pool, flow, share, length)
  local waiting, slots = get(flow, 'waiting'), get(pool, 'slots')
  local is_below = is_below_share(pool, share, get(flow, 'running') + waiting, get(flow, 'tokens'))
  if length == 0 and get(pool, 'free') > (is_below and 0 or headroom(pool)) then
    return 0, 0
  end
  local position = 1
  if waiting > 0 or not is_below then
    local others = math.max(1, get(pool, 'weights') / math.max(share, 1))
    position = math.min(length + 1, math.ceil((waiting + 1) * others))
  end
  local held = pool.values.held_ms
  return position, slots > 0 and held and math.ceil(position * held / slots) or UNKNOWN_MS
end

-- Ask the worker of the batch request that began last to give its slot up.
local function preempt_one(pool)
  local prefix = pool.prefix
  while true do
    local request_id = redis.call('ZPOPMAX', prefix .. ':preemptible')[1]
    if not request_id then
      return
    end
    local state, worker_id, attempt = unpack(redis.call('HMGET', request_key(prefix, request_id),
      'state', 'worker', 'attempt'))
    if state == 'running' and is_live(pool, worker_id) then
      return stop_attempt(prefix, worker_id, 'preempt', request_id, attempt)
    end
  end
end
