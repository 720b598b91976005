-- The life of a request in one pool: enqueue, claim, settle, finish, cancel. Last part of the
-- dispatch library.
--
-- Every function takes one key, the pool's prefix `{m:<pool>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py: one hash slot, so Redis Cluster works. Time is Redis
-- TIME in milliseconds; the last argument, which only tests and the benchmark in virtual time give,
-- takes its place. Commands of Redis 7.0 only.
--
-- A request's hash goes queued -> running -> finished, or queued -> finished; from running back to
-- queued when it is to be tried again. Only the current attempt may finish it, once. Invariant: where
-- a live worker has credit beyond the headroom nothing waits that it may have; within it, only what
-- is above its share.

local FINISHED_TTL_SECONDS = 600   -- how long a late question about a request can be answered
local MOST_DEAD_LETTERS = 1000
local DEAD_LETTER_MS = 86400000

-- ARGV: request_id class tenant project key weight prompt_bound output_bound gateway arrived_at_ms
-- ttft_target_ms max_wait_ms on_saturation(wait|refuse) resumable(1|0) adapter attempts resumed envelope
-- max_queue_length [now]. `attempts`: how many the request has had in a Redis that lost it; `resumed`:
-- tokens that its envelope goes on from.
-- -> {assigned, worker_id} | {queued, position, wait_ms, is_relaxed} | {full, length, wait_ms}
-- | {saturated, position, wait_ms} | {known, state}
local function enqueue(keys, args)
  local prefix, request_id, class = keys[1], args[1], args[2]
  if not CLASS_WEIGHTS[class] then
    return redis.error_reply('ERR unknown service class ' .. class)
  elseif string.find(args[3] .. args[4] .. args[5], ':', 1, true) then
    return redis.error_reply('ERR no colon may be in the id of a tenant, project or key')
  end
  local key = request_key(prefix, request_id)
  local state = redis.call('HGET', key, 'state')
  if state then
    return { 'known', state }
  end
  local pool = open_pool(prefix, time_or(args[20]))
  local path = make_path(class, args[3], args[4], args[5])
  local flow = open_flow(pool, path)
  local length, target_ms = waiting_in(pool), tonumber(args[11])
  note_active(pool, path, flow, math.max(1, tonumber(args[6])))
  local input, output = estimate(pool, flow, tonumber(args[7]), tonumber(args[8]))
  local worker_id = worker_with_credit(pool, input + output, args[15])
  local is_below = is_below_share(pool, get(flow, 'share'), get(flow, 'running'), get(flow, 'tokens'))
  local is_newcomer = is_below and get(flow, 'waiting') == 0 and get(pool, 'slots') > 0
  local is_free = worker_id and length == 0 and (is_below or not is_for_newcomers(pool, worker_id))
  local position, wait_ms = 0, 0
  if not is_free then
    position, wait_ms = outlook_of(pool, flow, get(flow, 'share'), length)
    local answer
    if is_refused(pool, flow, length, tonumber(args[19])) then
      answer = { 'full', length, wait_ms }
    elseif args[13] == 'refuse' and wait_ms > target_ms then
      answer = { 'saturated', position, wait_ms }
    end
    if answer then
      save(flow)
      save(pool)
      return answer
    end
  end
  local expires_ms, attempts = pool.now + tonumber(args[12]), tonumber(args[16])
  redis.call('HSET', key, 'state', 'queued', 'attempt', attempts, 'worker', '', 'path', path.text,
    'gateway', args[9], 'deadline_ms', pool.now + target_ms, 'expires_ms', expires_ms,
    'wait_ms', args[12],
    'prompt', args[7], 'output', args[8], 'resumable', args[14], 'adapter', args[15],
    'resumed', args[17], 'envelope', args[18])
  if attempts >= ATTEMPT_GAP then
    note_over(key, attempts - ATTEMPT_GAP, args[17], 'redis_lost')
  end
  redis.call('ZADD', prefix .. ':open', args[10], request_id)
  keep_flow(pool, flow)
  if is_free then
    pass_through(pool, path, flow)
    hand_over(pool, worker_id, { start_attempt(pool, path, flow, { id = request_id,
      attempt = attempts, prompt = tonumber(args[7]), output = tonumber(args[8]), preemptions = 0,
      resumable = args[14], adapter = args[15], envelope = args[18] }, worker_id) }, 0)
    save(pool)
    return { 'assigned', worker_id }
  end
  redis.call('ZADD', prefix .. ':queue', expires_ms, request_id)
  add_waiting(pool, path, flow, request_id, pool.now + target_ms)
  save(flow)
  if worker_id then
    -- There is headroom only: for this one, if it is below its share.
    hand_over(pool, worker_id, take_up_to(pool, worker_id, 1), 0)
  elseif class == 'interactive' and is_below_share(pool, get(flow, 'share'),
    get(flow, 'running') + get(flow, 'waiting') - 1, get(flow, 'tokens')) then
    preempt_one(pool)
  end
  local is_taken = worker_id and redis.call('HGET', key, 'state') == 'running'
  if is_newcomer then
    note_newcomer(pool, not is_taken)
  end
  save(pool)
  if is_taken then
    return { 'assigned', worker_id }
  end
  return { 'queued', math.max(1, position), wait_ms, wait_ms > target_ms and 1 or 0 }
end

-- ARGV: class tenant [now] -> {position, wait_ms, waiting of this flow, length of the queue}: what
-- one more request would find. Changes nothing.
local function outlook(keys, args)
  local pool = open_pool(keys[1], time_or(args[3]))
  local flow = open_flow(pool, make_path(args[1], args[2], '', ''))
  local length = waiting_in(pool)
  local position, wait_ms = outlook_of(pool, flow, get(flow, 'share'), length)
  return { position, wait_ms, get(flow, 'waiting'), length }
end

-- ARGV: worker_id info slots kv_tokens adapter_slots adapters ready(1|0) [now] -> inbox messages to
-- run now. Renews the lease; what the queue cannot use of the free slots stays as credit.
local function claim(keys, args)
  local prefix, worker_id, now = keys[1], args[1], time_or(args[8])
  local refused = renew_lease(prefix, worker_id, args[2], now)
  if refused then
    return refused
  end
  local pool, taken = open_pool(prefix, now), {}
  retire_idle_flows(pool)
  if args[7] == '1' then
    local slots = tonumber(args[3])
    local held = redis.call('SCARD', prefix .. ':running:' .. worker_id)
    set_kv(pool, worker_id, tonumber(args[4]))
    set_adapters(pool, worker_id, tonumber(args[5]), args[6])
    slots = paced_slots(pool, worker_id, slots)
    local credit = math.max(0, slots - held)
    set_slots(pool, worker_id, slots)
    set_credit(pool, worker_id, credit)
    taken = take_up_to(pool, worker_id, credit)
    redis.call('ZADD', prefix .. ':free-slots', credit - #taken, worker_id)
  else
    bench_worker(pool, worker_id)
  end
  save(pool)
  return taken
end

-- Replaces what a running request was charged by what it has really taken.
local function correct(pool, path, flow, charged_input, charged_output, input, output)
  charge(pool, path, flow, cost(input - charged_input, output - charged_output))
end

-- ARGV: worker_id info step_us progress [now] -> how many attempts are no longer this worker's. Progress
-- is a line `<request id> <attempt> <prompt tokens> <output tokens>` for each request under way.
-- An estimate of the output stands until it is passed. Renews the lease.
local function settle(keys, args)
  local prefix, worker_id, now = keys[1], args[1], time_or(args[5])
  local refused = renew_lease(prefix, worker_id, args[2], now)
  if refused then
    return refused
  end
  local pool, stale = open_pool(prefix, now), 0
  retire_idle_flows(pool)
  note_step(pool, worker_id, tonumber(args[3]))
  for request_id, attempt, input, output in
    string.gmatch(args[4], '(%S+) (%d+) (%d+) (%d+)\n') do
    local key = request_key(prefix, request_id)
    local fields = redis.call('HMGET', key, 'state', 'attempt', 'worker', 'path', 'charged_input',
      'charged_output')
    if fields[1] ~= 'running' or fields[2] ~= attempt or fields[3] ~= worker_id then
      stale = stale + 1
    else
      local charged_input, charged_output = tonumber(fields[5]), tonumber(fields[6])
      input, output = tonumber(input), math.max(tonumber(output), charged_output)
      input = input > 0 and input or charged_input
      if input ~= charged_input or output ~= charged_output then
        local path = parse_path(fields[4])
        local flow = open_flow(pool, path)
        correct(pool, path, flow, charged_input, charged_output, input, output)
        add(flow, 'tokens', input + output - charged_input - charged_output)
        save(flow)
        add(pool, 'kv_used:' .. worker_id, input + output - charged_input - charged_output)
        redis.call('HSET', key, 'charged_input', input, 'charged_output', output)
      end
    end
  end
  save(pool)
  return stale
end

-- A request that ended although nothing was wrong with it: with its payload, for a day at most.
local function keep_dead_letter(pool, request_id, envelope, entry)
  local letters = pool.prefix .. ':dead-letters'
  redis.call('XADD', letters, 'MAXLEN', '~', MOST_DEAD_LETTERS, '*', 'request', request_id,
    'envelope', envelope, 'record', entry)
  redis.call('XTRIM', letters, 'MINID', string.format('%.0f', pool.now - DEAD_LETTER_MS))
end

-- The terminal record: the request's own, for late questions such as the sweeper's, and the stream's.
-- -> {1, the record's id in the stream}
local function put_on_record(prefix, key, attempt, entry, output_tokens, origin)
  local stream_id = append_usage(prefix, 'record', entry, origin)
  redis.call('HSET', key, 'state', 'finished', 'record', entry, 'stream_id', stream_id)
  redis.call('HDEL', key, 'envelope')
  redis.call('EXPIRE', key, FINISHED_TTL_SECONDS)
  note_over(key, attempt, output_tokens, 'ended')
  return { 1, stream_id }
end

-- ARGV: request_id attempt usage_entry prompt_tokens output_tokens dead_letter(1|0) origin mode [now];
-- `output_tokens`: all that the entry tells of, billed or not.
-- -> {1, id in the usage stream} accepted | {0, tokens of this attempt that are told elsewhere (-1:
-- nobody knows), reason} | {-1} the request is unknown | {2} the attempt is under way (of mode `ask`).
-- Attempt 0 means "no worker has it". `origin` is `<outbox id> <seq>` of a worker's record. Of mode
-- `lost` an unknown request is put on record, since Redis has lost it; mode `ask` changes nothing. A
-- repetition of the accepted call (an answer lost with its connection) is accepted again and recorded
-- once.
local function finish(keys, args)
  local prefix, request_id, attempt, entry = keys[1], args[1], args[2], args[3]
  local key, origin, mode = request_key(prefix, request_id), args[7], args[8]
  local fields = redis.call('HMGET', key, 'state', 'attempt', 'worker', 'record', 'path', 'prompt',
    'charged_input', 'charged_output', 'started_ms', 'adapter', args[6] == '1' and 'envelope' or 'state',
    'stream_id')
  local state, worker_id = fields[1], fields[3]
  if not state then
    if mode == 'lost' then
      return put_on_record(prefix, key, attempt, entry, args[5], origin)
    end
    return { -1 }
  elseif state == 'finished' then
    if fields[4] == entry then
      return { 1, fields[12] }
    end
    return over(key, attempt)
  end
  local is_current = (state == 'queued' and attempt == '0')
    or (state == 'running' and attempt ~= '0' and attempt == fields[2])
  if not is_current then
    return over(key, attempt)
  elseif mode == 'ask' then
    return { 2 }
  end
  local pool, path = open_pool(prefix, time_or(args[9])), parse_path(fields[5])
  redis.call('ZREM', prefix .. ':open', request_id)
  local accepted = put_on_record(prefix, key, attempt, entry, args[5], origin)
  if args[6] == '1' then
    keep_dead_letter(pool, request_id, fields[11], entry)
  end
  if state == 'running' then
    local flow, input, output = open_flow(pool, path), tonumber(args[4]), tonumber(args[5])
    local charged_input, charged_output = tonumber(fields[7]), tonumber(fields[8])
    end_attempt(pool, path, flow, request_id, worker_id, charged_input + charged_output, fields[10])
    remember(pool, 'held_ms', pool.now - tonumber(fields[9]), POOL_HISTORY)
    correct(pool, path, flow, charged_input, charged_output, input, output)
    learn(pool, flow, tonumber(fields[6]), input, output)
    save(flow)
    keep_flow(pool, flow)
    free_slot(pool, worker_id)
  else
    redis.call('ZREM', prefix .. ':queue', request_id)
    redis.call('ZREM', prefix .. ':withdrawn', request_id)
    remove_waiting(pool, path, request_id)
  end
  save(pool)
  return accepted
end

-- ARGV: request_id -> running | queued | terminal | unknown. A queued request is taken out of the
-- queue, so that no worker gets it between this call and the caller's `finish` of attempt 0. One that
-- runs is not requeued any more.
local function cancel(keys, args)
  local prefix, request_id = keys[1], args[1]
  local fields = redis.call('HMGET', request_key(prefix, request_id), 'state', 'attempt', 'worker',
    'path', 'expires_ms')
  if fields[1] == 'running' then
    redis.call('HSET', request_key(prefix, request_id), 'cancelled', 1)
    redis.call('RPUSH', prefix .. ':inbox:' .. fields[3],
      'cancel ' .. request_id .. ' ' .. fields[2] .. '\n')
    return 'running'
  elseif fields[1] == 'queued' then
    local pool = open_pool(prefix, 0)
    redis.call('ZREM', prefix .. ':queue', request_id)
    redis.call('ZADD', prefix .. ':withdrawn', fields[5], request_id)
    remove_waiting(pool, parse_path(fields[4]), request_id)
    save(pool)
    return 'queued'
  elseif fields[1] == 'finished' then
    return 'terminal'
  end
  return 'unknown'
end

redis.register_function('penstock_enqueue_1', enqueue)
redis.register_function('penstock_register_1', register)
redis.register_function('penstock_leave_1', leave)
redis.register_function('penstock_claim_1', claim)
redis.register_function('penstock_report_progress_1', settle)
redis.register_function('penstock_held_1', held)
redis.register_function('penstock_finish_1', finish)
redis.register_function('penstock_cancel_1', cancel)
redis.register_function('penstock_reap_1', reap)
redis.register_function('penstock_requeue_1', requeue)
redis.register_function('penstock_adopt_1', adopt)
redis.register_function('penstock_epoch_1', epoch)
redis.register_function('penstock_outlook_1', outlook)
redis.register_function('penstock_missing_usage_1', missing_usage)
redis.register_function('penstock_append_usage_1', append_missing_usage)
redis.register_function('penstock_acknowledge_usage_1', acknowledge_usage)
