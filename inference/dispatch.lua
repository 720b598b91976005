-- The life of a request in one pool: enqueue, claim, settle, finish, cancel. Last part of the
-- dispatch library, after dispatch_shares.lua (who is next) and dispatch_workers.lua (where).
--
-- Every function takes one key, the pool's prefix `{m:<pool>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py: one hash slot, so Redis Cluster works. Time is Redis
-- TIME in milliseconds; the last argument, which only tests and the benchmark in virtual time give,
-- takes its place. Commands of Redis 7.0 only.
--
-- A request's hash goes queued -> running -> finished, or queued -> finished. Only the current
-- attempt may finish it, once. Invariant: where a live worker has credit beyond the headroom nothing
-- waits; within it, only what is above its share.

local FINISHED_TTL_SECONDS = 600   -- how long a late question about a request can be answered
local LARGEST_QUEUE = 2            -- times the cap, which is shared out among the tenants

-- Charges a request, whatever it will really take, and hands it to the worker. Its credit, of which
-- this takes one, is for the caller to write: a slot that is handed on changes nothing.
local function start_attempt(pool, path, flow, request, worker_id)
  local input, output = estimate(pool, flow, request.prompt, request.output)
  charge(pool, path, flow, cost(input, output))
  add(flow, 'running', 1)
  save(flow)
  set(pool, path.class .. ':served', pool.now)
  add(pool, 'free', -1)
  redis.call('HSET', request_key(pool.prefix, request.id), 'state', 'running', 'worker', worker_id,
    'attempt', request.attempt + 1, 'charged_input', input, 'charged_output', output)
  redis.call('SADD', pool.prefix .. ':running:' .. worker_id, request.id)
  return assignment(request.id, request.attempt + 1, request.envelope)
end

-- The next request's assignment, or nil. One whose deadline has passed is `withdrawn`: whoever ends
-- it finds it there, no worker is given it any more.
local function take_next(pool, worker_id)
  local for_newcomers = is_for_newcomers(pool)
  local classes, least_class = waiting_classes(pool)
  for _, class in ipairs(classes) do
    local tenant, least = next_tenant(pool, class.name, for_newcomers)
    while tenant do
      local request_id, path = pop_request(pool, class.name, tenant)
      redis.call('ZREM', pool.prefix .. ':queue', request_id)
      local fields = redis.call('HMGET', request_key(pool.prefix, request_id), 'state',
        'deadline_ms', 'attempt', 'prompt', 'output', 'envelope')
      local flow = open_flow(pool, path)
      add(flow, 'waiting', -1)
      if fields[1] == 'queued' and tonumber(fields[2]) > pool.now then
        note_served(pool, path, flow, least_class, least)
        local taken = start_attempt(pool, path, flow, { id = request_id, envelope = fields[6],
          attempt = tonumber(fields[3]), prompt = tonumber(fields[4]),
          output = tonumber(fields[5]) }, worker_id)
        note_left(pool, path)
        return taken
      end
      save(flow)
      redis.call('ZADD', pool.prefix .. ':withdrawn', fields[2] or 0, request_id)
      note_left(pool, path)
      tenant, least = next_tenant(pool, class.name, for_newcomers)
    end
  end
  return nil
end

local function take_up_to(pool, worker_id, credit)
  local taken = {}
  while #taken < credit do
    local message = take_next(pool, worker_id)
    if not message then
      break
    end
    taken[#taken + 1] = message
  end
  return taken
end

-- Sends messages, for which this many slots were freed.
local function hand_over(pool, worker_id, messages, freed)
  if #messages > 0 then
    redis.call('RPUSH', pool.prefix .. ':inbox:' .. worker_id, unpack(messages))
  end
  if freed ~= #messages then
    redis.call('ZINCRBY', pool.prefix .. ':free-slots', freed - #messages, worker_id)
  end
end

-- A full queue refuses who already has his share of it, so that one cannot keep the others out.
local function is_refused(pool, flow, length, most)
  if length < most then
    return false
  end
  local share = most * get(flow, 'share') / math.max(get(pool, 'weights'), get(flow, 'share'))
  return get(flow, 'waiting') >= math.floor(share) or length >= LARGEST_QUEUE * most
end

-- ARGV: request_id class tenant project key weight prompt_bound output_bound gateway
-- arrived_at_ms deadline_ms envelope max_queue_length [now]
-- -> {assigned, worker_id} | {queued, length} | {full, length} | {known, state}
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
  local pool = open_pool(prefix, time_or(args[14]))
  local path = make_path(class, args[3], args[4], args[5])
  local flow = open_flow(pool, path)
  local length = waiting_in(pool)
  note_active(pool, path, flow, math.max(1, tonumber(args[6])))
  local worker_id = worker_with_credit(pool)
  local is_below = is_below_share(pool, get(flow, 'share'), get(flow, 'running'))
  local is_newcomer = is_below and get(flow, 'waiting') == 0 and get(pool, 'slots') > 0
  local is_free = worker_id and length == 0 and (is_below or not is_for_newcomers(pool))
  if not is_free and is_refused(pool, flow, length, tonumber(args[13])) then
    save(flow)
    save(pool)
    return { 'full', length }
  end
  redis.call('HSET', key, 'state', 'queued', 'attempt', 0, 'worker', '', 'path', path.text,
    'gateway', args[9], 'deadline_ms', args[11], 'prompt', args[7], 'output', args[8],
    'envelope', args[12])
  redis.call('ZADD', prefix .. ':open', args[10], request_id)
  keep_flow(pool, flow)
  if is_free then
    pass_through(pool, path, flow)
    hand_over(pool, worker_id, { start_attempt(pool, path, flow, { id = request_id, attempt = 0,
      prompt = tonumber(args[7]), output = tonumber(args[8]), envelope = args[12] }, worker_id) }, 0)
    save(pool)
    return { 'assigned', worker_id }
  end
  redis.call('ZADD', prefix .. ':queue', args[11], request_id)
  add_waiting(pool, path, flow, request_id, args[11])
  save(flow)
  if worker_id then
    -- There is headroom only: for this one, if it is below its share.
    hand_over(pool, worker_id, take_up_to(pool, worker_id, 1), 0)
  end
  local is_taken = worker_id and redis.call('HGET', key, 'state') == 'running'
  if is_newcomer then
    note_newcomer(pool, not is_taken)
  end
  save(pool)
  if is_taken then
    return { 'assigned', worker_id }
  end
  return { 'queued', length + 1 }
end

-- ARGV: worker_id info slots ready(1|0) [now] -> inbox messages to run now. Renews the lease; what
-- the queue cannot use of the free slots stays as credit.
local function claim(keys, args)
  local prefix, worker_id, now = keys[1], args[1], time_or(args[5])
  local refused = renew_lease(prefix, worker_id, args[2], now)
  if refused then
    return refused
  end
  local pool, taken = open_pool(prefix, now), {}
  retire_idle_flows(pool)
  if args[4] == '1' then
    local slots = tonumber(args[3])
    local held = redis.call('SCARD', prefix .. ':running:' .. worker_id)
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

-- ARGV: worker_id info progress [now] -> how many attempts are no longer this worker's. Progress
-- is a line `<request id> <attempt> <prompt tokens> <output tokens>` for each request under way.
-- An estimate of the output stands until it is passed. Renews the lease.
local function settle(keys, args)
  local prefix, worker_id, now = keys[1], args[1], time_or(args[4])
  local refused = renew_lease(prefix, worker_id, args[2], now)
  if refused then
    return refused
  end
  local pool, stale = open_pool(prefix, now), 0
  retire_idle_flows(pool)
  for request_id, attempt, input, output in
    string.gmatch(args[3], '(%S+) (%d+) (%d+) (%d+)\n') do
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
        save(flow)
        redis.call('HSET', key, 'charged_input', input, 'charged_output', output)
      end
    end
  end
  save(pool)
  return stale
end

-- The slot of a finished attempt goes to the next in the queue, else back to the worker's credit.
local function free_slot(pool, worker_id)
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
  hand_over(pool, worker_id, take_up_to(pool, worker_id, credit), credit - before)
end

-- ARGV: request_id attempt usage_entry prompt_tokens output_tokens [now] -> 1 accepted | 0.
-- Attempt 0 means "no worker took it". A repetition of the accepted call (an answer lost with its
-- connection) is accepted again and recorded once. The record stays with the request for late
-- questions, such as the sweeper's.
local function finish(keys, args)
  local prefix, request_id, attempt, entry = keys[1], args[1], args[2], args[3]
  local key = request_key(prefix, request_id)
  local fields = redis.call('HMGET', key, 'state', 'attempt', 'worker', 'record', 'path', 'prompt',
    'charged_input', 'charged_output')
  local state, worker_id = fields[1], fields[3]
  if state == 'finished' then
    return (fields[4] == entry) and 1 or 0
  end
  local is_current = (state == 'queued' and attempt == '0')
    or (state == 'running' and attempt ~= '0' and attempt == fields[2])
  if not is_current then
    return 0
  end
  local pool, path = open_pool(prefix, time_or(args[6])), parse_path(fields[5])
  redis.call('HSET', key, 'state', 'finished', 'record', entry)
  redis.call('HDEL', key, 'envelope')
  redis.call('EXPIRE', key, FINISHED_TTL_SECONDS)
  redis.call('ZREM', prefix .. ':open', request_id)
  redis.call('XADD', prefix .. ':usage', '*', 'record', entry)
  if state == 'running' then
    local flow, input, output = open_flow(pool, path), tonumber(args[4]), tonumber(args[5])
    redis.call('SREM', prefix .. ':running:' .. worker_id, request_id)
    add(flow, 'running', -1)
    correct(pool, path, flow, tonumber(fields[7]), tonumber(fields[8]), input, output)
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
  return 1
end

-- ARGV: request_id -> running | queued | terminal | unknown. A queued request is taken out of the
-- queue, so that no worker gets it between this call and the caller's `finish` of attempt 0.
local function cancel(keys, args)
  local prefix, request_id = keys[1], args[1]
  local fields = redis.call('HMGET', request_key(prefix, request_id), 'state', 'attempt', 'worker',
    'path', 'deadline_ms')
  if fields[1] == 'running' then
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

redis.register_function('penstock_enqueue_2', enqueue)
redis.register_function('penstock_register_2', register)
redis.register_function('penstock_leave_2', leave)
redis.register_function('penstock_claim_2', claim)
redis.register_function('penstock_settle_progress_2', settle)
redis.register_function('penstock_held_2', held)
redis.register_function('penstock_finish_2', finish)
redis.register_function('penstock_cancel_2', cancel)
redis.register_function('penstock_reap_2', reap)
