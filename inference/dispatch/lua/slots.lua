-- Slots: which request gets one, and on which worker. Part of the dispatch library.

local MOST_PASSED_OVER = 32        -- requests that a worker may not have, in one call
local MOST_FOR_ADAPTERS = 8        -- of them that wait for adapters: each costs some 0.2 ms
local MOST_OF_A_FLOW = 3           -- of them for want of room, after which their flow is left alone
local MOST_WITHDRAWN = 128         -- requests that nobody may start any more, met in one call
local MOST_PREEMPTIONS = 2         -- of one request, so that it ends some day
local CANDIDATES = 4               -- workers with credit that are looked at for one request

-- Ask a worker to stop an attempt, by a message that begins with `cancel` or `preempt`.
local function stop_attempt(prefix, worker_id, word, request_id, attempt)
  redis.call('RPUSH', prefix .. SUFFIX.inbox .. worker_id,
    word .. ' ' .. request_id .. ' ' .. attempt .. '\n')
end

-- Return what a worker is to a request of so many tokens: how near it has the adapter, SLOT where
-- none is needed; nil where it has no room. A dead one is benched.
local function fitness(pool, worker_id, tokens, adapter)
  if not is_live(pool, worker_id) then
    bench_worker(pool, worker_id)
  elseif has_kv_for(pool, worker_id, tokens) then
    return adapter == '' and SLOT or nearness(pool, worker_id, adapter)
  end
  return nil
end

-- Find the live worker that has credit, room for so many tokens and for the adapter, and has that
-- the nearest, of those the one with most credit; return its id and its credit, or nil, and whether
-- no adapter stands in the way. Looked at are those with most credit of all and those that have the
-- adapter.
local function worker_with_credit(pool, tokens, adapter)
  if get(pool, 'free') <= 0 then
    return nil, nil, true
  end
  local key, best, most, nearest = pool.prefix .. SUFFIX.free_slots, nil, nil, -2
  local function look_at(worker_id, credit)
    local near = fitness(pool, worker_id, tokens, adapter)
    if near and (near > nearest or near == nearest and credit > most) then
      best, most, nearest = worker_id, credit, near
    end
  end
  local candidates = redis.call('ZREVRANGEBYSCORE', key, '+inf', '1', 'WITHSCORES', 'LIMIT', 0,
    CANDIDATES)
  for index = 1, #candidates, 2 do
    look_at(candidates[index], tonumber(candidates[index + 1]))
    if nearest == SLOT then
      return best, most, true
    end
  end
  local holders = adapter ~= '' and some_holders(pool, adapter) or {}
  local free, credit = scored_above(pool, 'free-slots', holders, 0)
  for _, worker_id in ipairs(free) do
    look_at(worker_id, credit[worker_id])
  end
  return best, most, best and (nearest >= MEMORY or may_load_in_slot(pool, best, adapter))
end

-- Take so many sequences from a worker's credit and from the sum; return what is left. One free
-- slot is enough for a wide request: what it lacks is not counted, but has to be freed before the
-- worker has credit again.
local function spend(pool, credit, sequences)
  local left = math.max(0, credit - sequences)
  add(pool, 'free', left - credit)
  return left
end

-- Charge a request, whatever it will really take, and give it to the worker; return its assignment.
-- The worker's credit is for the caller to `spend` and to write: a slot that is handed on changes
-- nothing.
local function start_attempt(pool, path, flow, request, worker_id)
  local input, output = estimate(pool, flow, request)
  local attempt = request.attempt + 1
  charge(pool, path, flow, cost(input, output))
  add(flow, 'running', request.sequences)
  add(flow, 'tokens', input + output)
  save(flow)
  add(pool, path.class .. ':running', request.sequences)
  add(worker_of(pool, worker_id), 'kv_used', input + output)
  note_adapter(pool, worker_id, path, request.adapter, 1)
  set(pool, path.class .. ':served', pool.now)
  redis.call('HSET', request_key(pool.prefix, request.id), 'state', 'running', 'worker', worker_id,
    'attempt', attempt, 'charged_input', input, 'charged_output', output, 'started_ms', pool.now)
  hold_request(pool, worker_id, request.id, request.sequences)
  if path.class == 'batch' and request.resumable == '1'
    and request.preemptions < MOST_PREEMPTIONS then
    redis.call('ZADD', pool.prefix .. ':preemptible', pool.now, request.id)
  end
  return assignment(request.id, attempt, request.envelope)
end

-- Take an attempt that is over, of a request by `id`, `sequences`, `adapter` and the tokens that it
-- was `charged`, from its worker and its flow.
local function end_attempt(pool, path, flow, worker_id, request)
  release_request(pool, worker_id, request.id, request.sequences)
  add(pool, path.class .. ':running', -request.sequences)
  add(worker_of(pool, worker_id), 'kv_used', -request.charged)
  note_adapter(pool, worker_id, path, request.adapter, -1)
  if path.class == 'batch' then
    redis.call('ZREM', pool.prefix .. ':preemptible', request.id)
  end
  add(flow, 'running', -request.sequences)
  add(flow, 'tokens', -request.charged)
end

-- The next request ------------------------------------------------------------------------------

-- Return whether a wide request may start: it leaves the headroom whole, or its flow stays below its
-- share with all of it. A narrow one was chosen by that.
local function may_be_so_wide(pool, worker_id, flow, request)
  return request.sequences == 1 or not is_for_newcomers(pool, worker_id, request.sequences)
    or is_below_share(pool, get(flow, 'share'), get(flow, 'running'), get(flow, 'tokens'),
      request.sequences)
end

-- Return whether the worker may have a request that is next: it has not been lost with it, and has
-- room for its sequences, its tokens and its adapter. And whether the worker is to wait for that
-- room and take no other, since enough others went by. For one that is too wide all flows wait that
-- are not below their share, so that slots become free for it; its own flow does in any case.
local function may_have(pool, worker_id, path, flow, request, passed_over)
  if string.find(request.excluded, ' ' .. worker_id .. ' ', 1, true) then
    return false
  elseif not may_be_so_wide(pool, worker_id, flow, request) then
    local counter = get(flow, 'counter')
    passed_over.for_width[path.class] = math.min(passed_over.for_width[path.class] or counter,
      counter)
    passed_over.is_for_width = true
    passed_over[path.flow] = MOST_OF_A_FLOW
    return false
  end
  local input, output = estimate(pool, flow, request)
  if not has_kv_for(pool, worker_id, input + output) then
    passed_over[path.flow] = (passed_over[path.flow] or 0) + 1
    return false, request.passes >= MOST_PASSES
  end
  if request.adapter == '' or may_run_adapter(pool, worker_id, path.tenant, request) then
    return true
  end
  passed_over.for_adapters = passed_over.for_adapters + 1
  passed_over[path.flow] = (passed_over[path.flow] or 0) + 1
  return false
end

-- Return a request that was taken out of the order; where it needs no adapter, nor is it among the
-- plain ones any more. `is_due`: it may still start, as it has not waited too long and its gateway is
-- there.
local function read_popped(pool, request_id, path)
  local state, expires_ms, deadline_ms, attempt, prompt, output, resumable, excluded, preemptions,
    adapter, passes, sequences, gateway, drains_on, load_ms = unpack(redis.call('HMGET',
      request_key(pool.prefix, request_id), 'state', 'expires_ms', 'deadline_ms', 'attempt',
      'prompt', 'output', 'resumable', 'excluded', 'preemptions', 'adapter', 'passes',
      'sequences', 'gateway', 'drains_on', 'load_ms'))
  path.load_ms = tonumber(load_ms) or 0
  if (adapter or '') == '' then
    note_plain_waits(pool, path, request_id, nil)
  end
  expires_ms = tonumber(expires_ms) or 0
  local may_wait = state == 'queued' and expires_ms > pool.waiting_now
  if may_wait and is_silent(pool, gateway) then
    set_aside(pool, gateway, request_id)
    may_wait = false
  end
  return { id = request_id, path = path, gateway = gateway, is_due = may_wait,
    deadline_ms = deadline_ms, attempt = tonumber(attempt), prompt = tonumber(prompt),
    output = tonumber(output), resumable = resumable, excluded = excluded or '',
    preemptions = tonumber(preemptions) or 0, adapter = adapter or '',
    passes = tonumber(passes) or 0, drains_on = drains_on or nil,
    sequences = tonumber(sequences) or 1 }
end

-- Take a request that was popped, and is not put back, out of the queue.
local function leave_queue(pool, request)
  redis.call('ZREM', pool.prefix .. SUFFIX.queue, request.id)
  if request.adapter ~= '' then
    note_waits(pool, request.path, request.adapter, request.id, nil)
  end
end

-- Leave a flow alone for the rest of the call, in which `restore_flows` has it wait again.
local function leave_alone(pool, passed_over, path)
  redis.call('ZREM', pool.prefix .. SUFFIX.waiting_tenants .. path.class, path.tenant)
  passed_over.left_alone[#passed_over.left_alone + 1] = path
end

-- Have the flows wait again that were left alone, where they still have requests waiting.
local function restore_flows(pool, passed_over)
  for _, path in ipairs(passed_over.left_alone) do
    if redis.call('EXISTS', pool.prefix .. ':' .. path.projects) == 1 then
      local counter = get(open_flow(pool, path), 'counter')
      redis.call('ZADD', pool.prefix .. SUFFIX.waiting_tenants .. path.class, counter, path.tenant)
    end
  end
end

-- Start a request that was popped on the worker; return its assignment and its sequences, or nil.
-- One that nobody may start any more is withdrawn: it leaves the queue, and whoever ends it finds it
-- among those that its gateway has waiting. One call withdraws so many, and then leaves each further
-- flow alone that has such a request at its head. One that this worker may not have goes to
-- `passed_over`, for the caller to put back.
local function start_popped(pool, worker_id, passed_over, request, least_class, least_tenant)
  local path = request.path
  local flow = open_flow(pool, path)
  add(flow, 'waiting', -1)
  local may_start, is_held = false, false
  if request.is_due then
    may_start, is_held = may_have(pool, worker_id, path, flow, request, passed_over)
  end
  if may_start then
    leave_queue(pool, request)
    request.envelope = redis.call('HGET', request_key(pool.prefix, request.id), 'envelope')
    note_served(pool, path, flow, least_class, least_tenant)
    end_waiting(pool, request.gateway, request.id)
    end_drain_for(pool, path.tenant, request.id, request.drains_on)
    local message = start_attempt(pool, path, flow, request, worker_id)
    note_left(pool, path)
    return message, request.sequences
  end
  save(flow)
  if request.is_due then
    passed_over[#passed_over + 1] = request
    passed_over.is_held = is_held
  else
    leave_queue(pool, request)
    passed_over.withdrawn = passed_over.withdrawn + 1
    end_drain_for(pool, path.tenant, request.id, request.drains_on)
  end
  note_left(pool, path)
  if (passed_over[path.flow] or 0) >= MOST_OF_A_FLOW
    or not request.is_due and passed_over.withdrawn >= MOST_WITHDRAWN then
    leave_alone(pool, passed_over, path)
  end
  return nil
end

-- Start the tenant's first request on the worker, or where one was passed over since its adapter
-- may not run there, the first of those whose adapters do. As `start_popped`.
local function start_first(pool, worker_id, passed_over, class, tenant, least_class, least_tenant)
  local adapters = passed_over.for_adapters > 0 and running_adapters(pool, worker_id, tenant) or {}
  local request = read_popped(pool, pop_request(pool, class, tenant, adapters))
  return start_popped(pool, worker_id, passed_over, request, least_class, least_tenant)
end

-- Start the first of the tenant's requests that need no adapter. As `start_popped`.
local function start_plain(pool, worker_id, passed_over, class, tenant, least_class, least_tenant)
  local request = read_popped(pool, pop_plain(pool, class, tenant))
  return start_popped(pool, worker_id, passed_over, request, least_class, least_tenant)
end

-- Return the tenant of a class that is next for a slot of the worker, and the least counter.
local function next_for(pool, worker_id, passed_over, class)
  return next_tenant(pool, class, pool.prefix .. SUFFIX.waiting_tenants .. class,
    passed_over.is_for_width or is_for_newcomers(pool, worker_id, 1), passed_over.for_width[class])
end

-- Return the tenant that is next of those with requests that need no adapter, and the least counter.
local function next_plain(pool, worker_id, passed_over, class)
  local least = redis.call('ZRANGE', pool.prefix .. SUFFIX.waiting_tenants .. class, 0, 0,
    'WITHSCORES')[2]
  return next_tenant(pool, class, plain_tenants_key(pool, class),
    passed_over.is_for_width or is_for_newcomers(pool, worker_id, 1),
    passed_over.for_width[class] or tonumber(least))
end

-- Return the least served of the tenants that wait in a class and have an adapter running on the
-- worker, and the least counter of the class; nil where there is none that may have the slot.
local function next_with_adapter(pool, worker_id, passed_over, class)
  local key, found, least = pool.prefix .. SUFFIX.waiting_tenants .. class, nil, nil
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  local is_for_newcomers = passed_over.is_for_width or is_for_newcomers(pool, worker_id, 1)
  for tenant in pairs(tenants_with_adapters(pool, worker_id)) do
    local counter = tonumber(redis.call('ZSCORE', key, tenant))
    if counter and (not least or counter < least or counter == least and tenant < found)
      and not (is_for_newcomers and not may_have_headroom(pool, class, tenant, counter - first)) then
      found, least = tenant, counter
    end
  end
  return found, tonumber(first)
end

-- Return whether a call looks at no more requests in their order, but for those that need no adapter,
-- or one that runs.
local function are_enough(passed_over)
  return #passed_over >= MOST_PASSED_OVER or passed_over.for_adapters >= MOST_FOR_ADAPTERS
end

-- Start the next request on the worker, only of one class where that is given; return its
-- assignment and its sequences, or nil where there is none that it may have. Where some are left
-- that wait for adapters, those go on that need none; and where so many were passed over that the
-- call looks at no more of them, those that need an adapter which runs.
local function take_next(pool, worker_id, passed_over, only_class)
  local classes, least_class = waiting_classes(pool)
  for _, class in ipairs(classes) do
    local tenant, least_tenant
    if not only_class or only_class == class.name then
      tenant, least_tenant = next_for(pool, worker_id, passed_over, class.name)
    end
    while tenant and not are_enough(passed_over) and not passed_over.is_held
      and passed_over.withdrawn < MOST_WITHDRAWN + MOST_PASSED_OVER do
      local message, sequences = start_first(pool, worker_id, passed_over, class.name, tenant,
        least_class, least_tenant)
      if message then
        return message, sequences
      end
      tenant, least_tenant = next_for(pool, worker_id, passed_over, class.name)
    end
    while passed_over.for_adapters > 0 and are_enough(passed_over) and not passed_over.is_held
      and not only_class do
      tenant, least_tenant = next_with_adapter(pool, worker_id, passed_over, class.name)
      if not tenant then
        break
      end
      local message, sequences = start_first(pool, worker_id, passed_over, class.name, tenant,
        least_class, least_tenant)
      if message then
        return message, sequences
      end
    end
    for _ = 1, passed_over.for_adapters > 0 and not only_class and MOST_PASSED_OVER or 0 do
      tenant, least_tenant = next_plain(pool, worker_id, passed_over, class.name)
      if not tenant or passed_over.is_held then
        break
      end
      local message, sequences = start_plain(pool, worker_id, passed_over, class.name, tenant,
        least_class, least_tenant)
      if message then
        return message, sequences
      end
    end
  end
  return nil
end

-- Start requests on the worker while it has credit, at most so many, the first of one class if that
-- is given and waits; return their assignments and the credit that is left. What was passed over
-- waits where it did.
local function take_up_to(pool, worker_id, credit, most, first_class)
  local taken, only_class, is_through = {}, first_class, false
  local went_by = gone_by(pool, worker_id)
  local passed_over = { for_width = {}, left_alone = {}, withdrawn = 0, for_adapters = 0 }
  while credit > 0 and #taken < most do
    local message, sequences = take_next(pool, worker_id, passed_over, only_class)
    if message then
      taken[#taken + 1] = message
      credit = spend(pool, credit, sequences)
    elseif not only_class then
      is_through = true
      break
    end
    only_class = nil
  end
  note_look(pool, worker_id, credit, is_through and passed_over.withdrawn < MOST_WITHDRAWN
    and passed_over.for_adapters > 0 and passed_over.for_adapters == #passed_over)
  for _, each in ipairs(passed_over) do
    redis.call('HINCRBY', request_key(pool.prefix, each.id), 'passes',
      math.max(1, #taken + went_by))
    local flow = open_flow(pool, each.path)
    put_back(pool, each.path, flow, each.id, each.deadline_ms, each.adapter)
    save(flow)
  end
  restore_flows(pool, passed_over)
  return taken, credit
end

-- Send messages to a worker, whose credit was another `before`.
local function hand_over(pool, worker_id, messages, before, credit)
  if #messages > 0 then
    redis.call('RPUSH', pool.prefix .. SUFFIX.inbox .. worker_id, unpack(messages))
  end
  if credit ~= before then
    redis.call('ZADD', pool.prefix .. SUFFIX.free_slots, credit, worker_id)
  end
end

-- Start the next request on a worker that has credit, if it may have one.
local function hand_over_next(pool, worker_id, credit)
  local taken, left = take_up_to(pool, worker_id, credit, 1)
  hand_over(pool, worker_id, taken, credit, left)
end

-- Give the slot of an attempt that is over to the next in the queue, one of `first_class` before
-- all others, else back to the worker's credit.
local function free_slot(pool, worker_id, first_class)
  local prefix = pool.prefix
  local before = tonumber(redis.call('ZSCORE', prefix .. SUFFIX.free_slots, worker_id))
  if not before then
    return
  elseif not is_live(pool, worker_id) then
    return bench_worker(pool, worker_id)
  end
  local slots = tonumber(redis.call('ZSCORE', prefix .. SUFFIX.slots, worker_id))
  -- None is freed while a worker holds more than its slots: of wide requests, or since it posted
  -- fewer than before.
  local credit = math.max(0, slots - sequences_held(pool, worker_id))
  add(pool, 'free', credit - before)
  if before > 0 and is_look_spared(pool, worker_id) then
    return hand_over(pool, worker_id, {}, before, credit)
  end
  local taken, left = take_up_to(pool, worker_id, credit, credit, first_class)
  hand_over(pool, worker_id, taken, before, left)
end
