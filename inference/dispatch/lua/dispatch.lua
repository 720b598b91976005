-- The life of a request in one pool: enqueue, claim, report progress; and the names of all functions.
-- Last part of the dispatch library.
--
-- Every function takes one key, the pool's prefix `{m:<pool>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py, so it touches one pool. Its first line names its
-- arguments in their order; counts are tokens, requests or slots, flags 1 or 0, `_ms` and `_us` say
-- the unit of a time. `now`, in ms, comes last and only from tests and the benchmark in virtual
-- time: otherwise it is Redis TIME. Commands of Redis 7.0 only.
--
-- A request's hash goes queued -> running -> finished, or queued -> finished; from running back to
-- queued when it is to be tried again. Only the current attempt may finish it, once. Invariant:
-- where a live worker has credit beyond the headroom nothing waits that it may have; within it,
-- only what is above its share.

-- Return what is wrong with a request, as an error reply, or nil.
local function enqueue_error(asked)
  if not CLASS_WEIGHTS[asked.service_class] then
    return redis.error_reply('ERR unknown service class ' .. asked.service_class)
  end
  for _, id in ipairs({ asked.tenant, asked.project, asked.key }) do
    if string.find(id, ':', 1, true) then
      return redis.error_reply('ERR no colon may be in the id of a tenant, project or key, got '
        .. id)
    end
  end
  return nil
end

-- Return the worker that has room for a new request, its credit and whether no adapter stands in the
-- way there, or nil; whether the request may start there at once, since nobody waits or only who waits
-- for an adapter; and whether its flow is a newcomer.
local function find_slot(pool, path, flow, request, length)
  local input, output = estimate(pool, flow, request)
  local worker_id, credit, is_ready = worker_with_credit(pool, input + output, request.adapter)
  local is_below = is_below_share(pool, get(flow, 'share'), get(flow, 'running'),
    get(flow, 'tokens'), request.sequences)
  local may_start = worker_id and is_ready and (length == 0
      or may_go_by(pool, path, request.adapter, worker_id))
    and (is_below and length == 0 or not is_for_newcomers(pool, worker_id, request.sequences))
  -- Who waits for an adapter says nothing of how many slots newcomers need.
  local is_newcomer = is_below and get(flow, 'waiting') == 0 and get(pool, 'slots') > 0
    and (request.adapter == '' or is_ready)
  local worker = worker_id and { id = worker_id, credit = credit, is_ready = is_ready }
  return worker, may_start, is_newcomer
end

-- Queue a new request. Where a worker has headroom only, start what is next there: this one, if it
-- is below its share; not where it waits for its adapter, since what waited before has been tried
-- there. Where none has credit, have a batch request give way to an interactive one. Return whether
-- the request was started.
local function queue_up(pool, path, flow, request, gateway, expires_ms, deadline_ms, worker)
  redis.call('ZADD', pool.prefix .. SUFFIX.queue, expires_ms, request.id)
  begin_waiting(pool, gateway, request.id, expires_ms)
  add_waiting(pool, path, flow, request.id, deadline_ms, request.adapter)
  save(flow)
  if worker and not worker.is_ready then
    return false
  elseif worker then
    hand_over_next(pool, worker.id, worker.credit)
    return redis.call('HGET', request_key(pool.prefix, request.id), 'state') == 'running'
  end
  local others = get(flow, 'running') + get(flow, 'waiting') - 1
  if path.class == 'interactive'
    and is_below_share(pool, get(flow, 'share'), others, get(flow, 'tokens'), 1) then
    preempt_one(pool)
  end
  return false
end

-- Enqueue a request: start it at once where a worker has a slot for it and nobody waits, else queue
-- it, unless the queue is full for its flow, or the wait is longer than its TTFT target and it
-- would rather be refused; and unless the pool holds as many bytes of payloads as it may, or as
-- this flow may, and unless too much usage waits to be collected. What is `asked` is a packed map,
-- the `EnqueueOrder` of gpu_workers/protocol/calls.py. `owed_end`: how the envelope ends where the
-- request is owed its promises, '' not to judge that.
-- Reply: {assigned, worker_id} | {queued, position, wait_ms, is_relaxed} | {full, length, wait_ms}
-- | {saturated, position, wait_ms} | {known, state} | {memory_full, bytes, wait_ms}
-- | {share_full, bytes of the flow, most of it} | {usage_full} | {loads_full, wait_ms, used_ms,
-- load_ms}; what is judged has 1 or 0 last, in those of a request that is taken.
local function enqueue(keys, args)
  local prefix, packed, envelope, owed_end, now = keys[1], unpack(args)
  local asked = cmsgpack.unpack(packed)
  local wrong = enqueue_error(asked)
  if wrong then
    return wrong
  end
  local key, adapter = request_key(prefix, asked.request_id), asked.adapter
  local state, was_owed = unpack(redis.call('HMGET', key, 'state', 'owed'))
  if state then
    return { 'known', state, tonumber(was_owed) }
  elseif is_usage_full(prefix) then
    return { 'usage_full' }
  end
  local pool = open_pool(prefix, now_ms(now))
  local path = make_path(asked.service_class, asked.tenant, asked.project, asked.key)
  local flow, length = open_flow(pool, path), waiting_in(pool)
  path.load_ms = asked.max_load_ms
  local request = { id = asked.request_id, attempt = asked.attempts, prompt = asked.prompt_bound,
    output = asked.output_bound, sequences = asked.sequences, preemptions = 0,
    resumable = asked.is_resumable and '1' or '0', adapter = adapter, envelope = envelope }
  note_gateway(pool, asked.gateway)
  note_active(pool, path, flow, math.max(1, asked.weight))
  local worker, may_start, is_newcomer = find_slot(pool, path, flow, request, length)
  local target_ms, position, wait_ms, refusal = asked.ttft_target_ms, 0, 0, nil
  if not may_start then
    position, wait_ms = forecast_wait(pool, flow, get(flow, 'share'), length)
    refusal = queue_refusal(pool, flow, length, asked.max_queue_length, position, wait_ms,
      asked.on_saturation == 'refuse' and target_ms or math.huge)
      or load_refusal(pool, path, adapter)
  end
  refusal = refusal
    or payload_refusal(pool, flow, #envelope, asked.max_payload_bytes, wait_ms)
  if refusal then
    save(flow)
    keep_flow(pool, flow)
    save(pool)
    return refusal
  end
  add_payload(pool, flow, #envelope)
  local owed
  envelope, owed = judged(pool, flow, request, owed_end, wait_ms <= target_ms)
  local deadline_ms = pool.waiting_now + target_ms
  local expires_ms = pool.waiting_now + asked.max_wait_ms
  redis.call('HSET', key, 'state', 'queued', 'attempt', asked.attempts, 'worker', '',
    'path', path.text, 'gateway', asked.gateway, 'deadline_ms', deadline_ms,
    'expires_ms', expires_ms, 'wait_ms', asked.max_wait_ms, 'prompt', asked.prompt_bound,
    'output', asked.output_bound, 'sequences', asked.sequences, 'resumable', request.resumable,
    'adapter', adapter, 'resumed', asked.resumed, 'envelope', envelope)
  if owed then
    redis.call('HSET', key, 'owed', owed)
  end
  if path.load_ms > 0 and adapter ~= '' then
    redis.call('HSET', key, 'load_ms', path.load_ms)
  end
  if request.attempt >= ATTEMPT_GAP then
    note_over(key, request.attempt - ATTEMPT_GAP, asked.resumed, 'redis_lost')
  end
  redis.call('ZADD', prefix .. SUFFIX.open_requests, asked.arrived_at_ms, asked.request_id)
  keep_flow(pool, flow)
  if may_start then
    if length == 0 then
      pass_through(pool, path, flow)
    else
      go_by(pool, path, flow, worker.id)
      if is_newcomer then
        note_newcomer(pool, false)
      end
    end
    local message = start_attempt(pool, path, flow, request, worker.id)
    hand_over(pool, worker.id, { message }, worker.credit,
      spend(pool, worker.credit, request.sequences))
    save(pool)
    return { 'assigned', worker.id, owed }
  end
  local is_started = queue_up(pool, path, flow, request, asked.gateway, expires_ms, deadline_ms,
    worker)
  if is_newcomer then
    note_newcomer(pool, not is_started)
  end
  save(pool)
  if is_started then
    return { 'assigned', worker.id, owed }
  end
  prefetch_for_new(pool, adapter, position, path)
  return { 'queued', math.max(1, position), wait_ms, wait_ms > target_ms and 1 or 0, owed }
end

-- Forecast what one more request of a tenant and class would find; changes nothing.
-- Reply: {position, wait_ms, requests of this flow that wait, length of the queue}.
local function forecast(keys, args)
  local prefix, class, tenant, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
  local flow = open_flow(pool, make_path(class, tenant, '', ''))
  local length = waiting_in(pool)
  local position, wait_ms = forecast_wait(pool, flow, get(flow, 'share'), length)
  return { position, wait_ms, get(flow, 'waiting'), length }
end

-- Claim requests for all slots of a worker that are free, and renew its lease. `info` is its
-- description. What the queue cannot use of the free slots stays as credit; a worker that is not
-- `ready` has none.
-- Reply: inbox messages to run now.
local function claim(keys, args)
  local prefix, worker_id, info, slots, kv_tokens, adapter_slots, ready, now = keys[1],
    unpack(args)
  now = now_ms(now)
  local refused = renew_lease(prefix, worker_id, info, now)
  if refused then
    return refused
  end
  local pool, taken = open_pool(prefix, now), {}
  note_call(pool, true)
  retire_idle_flows(pool)
  if ready == '1' then
    set_kv(pool, worker_id, tonumber(kv_tokens))
    set_adapter_slots(pool, worker_id, tonumber(adapter_slots))
    if tonumber(adapter_slots) > 0 then
      forget_unanswered(pool, worker_id)
    end
    slots = paced_slots(pool, worker_id, tonumber(slots))
    local credit, left = math.max(0, slots - sequences_held(pool, worker_id)), 0
    set_slots(pool, worker_id, slots)
    set_credit(pool, worker_id, credit)
    taken, left = take_up_to(pool, worker_id, credit, credit)
    redis.call('ZADD', prefix .. SUFFIX.free_slots, left, worker_id)
  else
    bench_worker(pool, worker_id)
  end
  save(pool)
  return taken
end

-- Charge an attempt for so many tokens in place of its estimates. The estimate of the prompt stands
-- until it is counted (0), that of the output until it is passed. Return whether the worker has the
-- attempt.
local function charge_progress(pool, worker_id, request_id, attempt, input, output)
  local key = request_key(pool.prefix, request_id)
  local state, current_attempt, holder, path_text, charged_input, charged_output =
    unpack(redis.call('HMGET', key, 'state', 'attempt', 'worker', 'path', 'charged_input',
      'charged_output'))
  if state ~= 'running' or current_attempt ~= attempt or holder ~= worker_id then
    return false
  end
  charged_input, charged_output = tonumber(charged_input), tonumber(charged_output)
  input, output = input > 0 and input or charged_input, math.max(output, charged_output)
  if input ~= charged_input or output ~= charged_output then
    local path, more = parse_path(path_text), input + output - charged_input - charged_output
    local flow = open_flow(pool, path)
    correct_charge(pool, path, flow, charged_input, charged_output, input, output)
    add(flow, 'tokens', more)
    save(flow)
    add(worker_of(pool, worker_id), 'kv_used', more)
    redis.call('HSET', key, 'charged_input', input, 'charged_output', output)
  end
  return true
end

-- Report what a worker's attempts have really taken, and renew its lease. `progress` has a line
-- `<request id> <attempt> <prompt tokens> <output tokens>` for each; `step_us` is how long a step
-- of its engine takes, 0 if unknown.
-- Reply: how many of the attempts are no longer this worker's.
local function report_progress(keys, args)
  local prefix, worker_id, info, step_us, progress, now = keys[1], unpack(args)
  now = now_ms(now)
  local refused = renew_lease(prefix, worker_id, info, now)
  if refused then
    return refused
  end
  local pool, stale = open_pool(prefix, now), 0
  note_call(pool, true)
  retire_idle_flows(pool)
  note_step(pool, worker_id, tonumber(step_us))
  for request_id, attempt, input, output in
    string.gmatch(progress, '(%S+) (%d+) (%d+) (%d+)\n') do
    if not charge_progress(pool, worker_id, request_id, attempt, tonumber(input),
      tonumber(output)) then
      stale = stale + 1
    end
  end
  save(pool)
  return stale
end

-- A Redis that holds all it may runs what renews, ends or frees something; it refuses newcomers,
-- and entries that an outbox keeps.
local WITHOUT_MEMORY = { 'allow-oom' }
local READ_ONLY = { 'no-writes' }

redis.register_function('penstock_enqueue_2', enqueue)
redis.register_function('penstock_append_usage_1', append_usage)
redis.register_function{ function_name = 'penstock_register_1', callback = register,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_beat_1', callback = beat,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_leave_1', callback = leave,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_claim_2', callback = claim,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_post_adapters_2', callback = post_adapters,
  flags = WITHOUT_MEMORY }
redis.register_function('penstock_prefetch_1', prefetch_adapter)
redis.register_function{ function_name = 'penstock_give_order_1', callback = give_order,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_report_progress_1', callback = report_progress,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_held_1', callback = held,
  flags = READ_ONLY }
redis.register_function{ function_name = 'penstock_finish_1', callback = finish,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_cancel_1', callback = cancel,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_reap_1', callback = reap,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_reap_gone_1', callback = reap_gone,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_requeue_1', callback = requeue,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_adopt_1', callback = adopt,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_epoch_1', callback = epoch,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_forecast_1', callback = forecast,
  flags = READ_ONLY }
redis.register_function{ function_name = 'penstock_missing_usage_1', callback = missing_usage,
  flags = READ_ONLY }
redis.register_function{ function_name = 'penstock_acknowledge_usage_1',
  callback = acknowledge_usage, flags = WITHOUT_MEMORY }
