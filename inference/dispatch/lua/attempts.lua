-- More than one attempt: what a dead worker held or a batch request gave up waits again, and a
-- worker that an emptied Redis forgot takes its requests back; and what workers are told besides:
-- to get an adapter, to drain, to resume. Part of the dispatch library.

-- Note how many tokens of an attempt that is over are recorded elsewhere: by the next attempt,
-- which goes on from them, or by the terminal record. All others are waste.
local function note_over(key, attempt, tokens, reason)
  redis.call('HSET', key, 'after:' .. attempt, tokens .. ' ' .. reason)
end

-- Return the reply of `finish` to an attempt that is over: {0, tokens of it that are recorded
-- elsewhere, -1 if that is unknown, reason}.
local function over_reply(key, attempt)
  local noted = redis.call('HGET', key, 'after:' .. attempt)
  local tokens, reason = string.match(noted or '-1 ended', '^(%S+) (%S+)$')
  return { 0, tonumber(tokens), reason }
end

-- Queue a request again, for as long as it might wait at first, and start what is next where a
-- worker has room for its tokens and its adapter.
local function wait_again(pool, path, request_id, gateway, wait_ms, deadline_ms, tokens, adapter)
  local expires_ms = pool.waiting_now + wait_ms
  redis.call('HSET', request_key(pool.prefix, request_id), 'state', 'queued', 'worker', '',
    'expires_ms', expires_ms)
  redis.call('ZADD', pool.prefix .. SUFFIX.queue, expires_ms, request_id)
  begin_waiting(pool, gateway, request_id, expires_ms)
  local flow = open_flow(pool, path)
  add_waiting(pool, path, flow, request_id, deadline_ms, adapter)
  save(flow)
  local worker_id, credit = worker_with_credit(pool, tokens, adapter)
  if worker_id then
    hand_over_next(pool, worker_id, credit)
  end
  prefetch(pool, adapter, 1, path)
end

-- Why an attempt is over. Of a worker that was lost, or can get no adapter, the request is kept away.
local REASONS = { worker_lost = true, adapters_unavailable = true, frames_lost = true,
  preempted = true }
local KEPT_AWAY = { worker_lost = true, adapters_unavailable = true }

-- Requeue a request whose worker was lost, whose frames were lost, that gives its slot up, or whose
-- worker can get no adapter. With an `envelope`, which goes on from so many `resumed` tokens, the
-- next attempt runs that; '' keeps the one that is there.
--
-- The request waits with its first deadline, so at the head of its key, and for as long as it might
-- have at first, since it may have run for longer than that; what the attempt was charged is given
-- back, since the end charges all of it once. A worker that was lost is given nothing any more,
-- this request not even if it comes back; one whose frames were lost is asked to stop; one that can
-- get no adapter is given nothing for a while that needs one.
-- Reply: {requeued, attempt that is over} | {exhausted, tries}: that were enough, or no other worker
-- has adapters | {stale}.
local function requeue(keys, args)
  local prefix, request_id, attempt, reason, envelope, resumed, now = keys[1], unpack(args)
  if not REASONS[reason] then
    return redis.error_reply('ERR expected worker_lost, adapters_unavailable, frames_lost or '
      .. 'preempted, got ' .. reason)
  end
  local key = request_key(prefix, request_id)
  local state, current_attempt, worker_id, path_text, input, output, deadline_ms, wait_ms, tries,
    excluded, preemptions, adapter, cancelled, resumed_before, sequences, gateway = unpack(
      redis.call('HMGET', key, 'state', 'attempt', 'worker', 'path', 'charged_input',
        'charged_output', 'deadline_ms', 'wait_ms', 'tries', 'excluded', 'preemptions', 'adapter',
        'cancelled', 'resumed', 'sequences', 'gateway'))
  if state ~= 'running' or current_attempt ~= attempt or cancelled then
    return { 'stale' }
  end
  tries = (tonumber(tries) or 0) + 1
  local pool, path = open_pool(prefix, now_ms(now)), parse_path(path_text)
  excluded = KEPT_AWAY[reason] and (excluded or ' ') .. worker_id .. ' ' or excluded
  local has_another = true
  if reason == 'adapters_unavailable' then
    close_to_adapters(pool, worker_id)
    has_another = is_adapter_elsewhere(pool, excluded)
  end
  if not has_another or reason ~= 'preempted' and tries >= MOST_TRIES then
    return { 'exhausted', tries }
  end
  local flow = open_flow(pool, path)
  input, output = tonumber(input), tonumber(output)
  end_attempt(pool, path, flow, worker_id, { id = request_id, charged = input + output,
    sequences = tonumber(sequences) or 1, adapter = adapter })
  charge(pool, path, flow, -cost(input, output))
  if envelope ~= '' then
    replace_payload(pool, flow, key, envelope)
    redis.call('HSET', key, 'resumed', resumed)
  else
    resumed = resumed_before or '0'
  end
  save(flow)
  if reason == 'worker_lost' then
    redis.call('HSET', key, 'tries', tries, 'excluded', excluded)
    bench_worker(pool, worker_id)
  elseif reason == 'adapters_unavailable' then
    redis.call('HSET', key, 'tries', tries, 'excluded', excluded)
    free_slot(pool, worker_id)
  elseif reason == 'frames_lost' then
    redis.call('HSET', key, 'tries', tries)
    stop_attempt(prefix, worker_id, 'cancel', request_id, attempt)
    free_slot(pool, worker_id)
  else
    redis.call('HSET', key, 'preemptions', (tonumber(preemptions) or 0) + 1)
    free_slot(pool, worker_id, 'interactive')
  end
  note_over(key, attempt, resumed, reason)
  wait_again(pool, path, request_id, gateway, tonumber(wait_ms), deadline_ms, input + output,
    adapter or '')
  save(pool)
  return { 'requeued', tonumber(attempt) }
end

-- Return the words of a line.
local function words_of(line)
  local words = {}
  for word in string.gmatch(line, '%S+') do
    words[#words + 1] = word
  end
  return words
end

-- Take a request back for the worker that runs it, unless somebody else has it; return its id and
-- whether it is the worker's.
local function adopt_one(pool, worker_id, line, envelope)
  local request_id, attempt, class, tenant, project, key_id, weight, prompt_bound, output_bound,
    gateway, arrived_at_ms, ttft_target_ms, max_wait_ms, resumable, resumed, sequences, adapter =
    unpack(words_of(line))
  local prefix, key = pool.prefix, request_key(pool.prefix, request_id)
  attempt, adapter = tonumber(attempt), adapter or ''
  local state, known_attempt, known_worker = unpack(redis.call('HMGET', key, 'state', 'attempt',
    'worker'))
  known_attempt = tonumber(known_attempt)
  -- One that was withdrawn is for its gateway to end.
  local is_free = not state or (state == 'queued' and known_attempt <= attempt + ATTEMPT_GAP
    and redis.call('ZSCORE', prefix .. SUFFIX.queue, request_id))
  if not is_free then
    return request_id, state == 'running' and known_attempt == attempt and known_worker == worker_id
  end
  local path = make_path(class, tenant, project, key_id)
  if state then
    redis.call('ZREM', prefix .. SUFFIX.queue, request_id)
    end_waiting(pool, gateway, request_id)
    remove_waiting(pool, path, request_id, adapter)
    end_drain_for(pool, tenant, request_id, redis.call('HGET', key, 'drains_on'))
  end
  local flow = open_flow(pool, path)
  meet_gateway(pool, gateway)
  note_active(pool, path, flow, tonumber(weight))
  replace_payload(pool, flow, key, envelope)
  save(flow)
  keep_flow(pool, flow)
  redis.call('HSET', key, 'path', path.text, 'gateway', gateway, 'prompt', prompt_bound, 'output',
    output_bound, 'resumable', resumable, 'resumed', resumed, 'sequences', sequences,
    'adapter', adapter, 'wait_ms', max_wait_ms,
    'deadline_ms', tonumber(arrived_at_ms) - pool.skipped + tonumber(ttft_target_ms),
    'expires_ms', tonumber(arrived_at_ms) - pool.skipped + tonumber(max_wait_ms))
  redis.call('ZADD', prefix .. SUFFIX.open_requests, arrived_at_ms, request_id)
  -- The worker has posted no credit yet that this could take of.
  start_attempt(pool, path, flow, { id = request_id, attempt = attempt - 1, envelope = envelope,
    prompt = tonumber(prompt_bound), output = tonumber(output_bound), resumable = resumable,
    preemptions = 0, sequences = tonumber(sequences), adapter = adapter }, worker_id)
  return request_id, true
end

-- Take back what a worker runs, after it has registered with a Redis that knew nothing of it:
-- worker_id, now ('' for Redis TIME) and, for each request, a line `<request id> <attempt> <class>
-- <tenant> <project> <key> <weight> <prompt bound> <output bound> <gateway> <arrived_at_ms>
-- <ttft_target_ms> <max_wait_ms> <resumable> <resumed> <sequences> [<adapter>]` and its envelope.
-- Reply: the ids of those that are not this worker's any more.
local function adopt(keys, args)
  local prefix, worker_id, now, stale = keys[1], args[1], args[2], {}
  local pool = open_pool(prefix, now_ms(now ~= '' and now))
  for index = 3, #args, 2 do
    local request_id, is_its_own = adopt_one(pool, worker_id, args[index], args[index + 1])
    if not is_its_own then
      stale[#stale + 1] = request_id
    end
  end
  save(pool)
  return stale
end

-- Note how near a worker has adapters, where that has changed, and start what waited for one of them
-- to come: worker_id, now ('' for Redis TIME), then each adapter, its level, 0 for one that it has no
-- more, and for how many microseconds the engine stood still to load it, 0 if it did not. Reply: OK.
local function post_adapters(keys, args)
  local prefix, worker_id, now, has_come = keys[1], args[1], args[2], false
  local refused = lease_error(prefix, worker_id)
  if refused then
    return refused
  end
  local pool = open_pool(prefix, now_ms(now ~= '' and now))
  for index = 3, #args, 3 do
    local adapter, level, load_us = args[index], tonumber(args[index + 1]),
      tonumber(args[index + 2])
    if not is_adapter_name(adapter) then
      return redis.error_reply('ERR expected the name of an adapter, at most ' .. LONGEST_NAME
        .. ' bytes without a space')
    end
    if not level or level < 0 or level > SLOT then
      return redis.error_reply('ERR expected a level from 0 to 3, got ' .. args[index + 1])
    end
    if not load_us or load_us < 0 then
      return redis.error_reply('ERR expected microseconds, got ' .. tostring(args[index + 2]))
    end
    has_come = post_level(pool, worker_id, adapter, level, load_us) or has_come
  end
  local state = adapters_of(pool, worker_id)
  set_mute(state, false)
  forget_missed(state, pool.now - COMING_MS)
  if has_come and redis.call('EXISTS', prefix .. SUFFIX.adapters_waiting) == 1 then
    forget_look(pool, worker_id)
    free_slot(pool, worker_id)
  end
  save(pool)
  return redis.status_reply('OK')
end

-- Have a worker get an adapter ahead of its first request, as for one that waits, unless one has it or
-- gets it. Reply: OK.
local function prefetch_adapter(keys, args)
  local prefix, adapter, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
  prefetch(pool, adapter, 1)
  save(pool)
  return redis.status_reply('OK')
end

local ORDERS = { 'drain', 'drain stay', 'resume' }

-- Give a worker an order of the operator's, in place of one that it has not read: to drain, as it
-- does by SIGTERM; to drain and stay, or to take requests again. From a drain on it is given nothing.
-- Repeating this changes nothing. Reply: 1, or 0 if the worker is unknown, fenced or dead.
local function give_order(keys, args)
  local prefix, worker_id, order, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
  if not is_live(pool, worker_id) then
    return 0
  end
  local inbox, is_known = prefix .. SUFFIX.inbox .. worker_id, false
  for _, each in ipairs(ORDERS) do
    redis.call('LREM', inbox, 0, each .. '\n')
    is_known = is_known or each == order
  end
  if not is_known then
    return redis.error_reply('ERR unknown order ' .. order)
  end
  redis.call('RPUSH', inbox, order .. '\n')
  if order ~= 'resume' then
    set_credit(pool, worker_id, nil)
  end
  save(pool)
  return 1
end

-- Name this Redis, unless it has a name: the first candidate stays. Reply: the epoch of this Redis.
-- Another one than before means that all that was here has been lost.
local function epoch(keys, args)
  local prefix, candidate = keys[1], unpack(args)
  redis.call('SET', prefix .. SUFFIX.epoch, candidate, 'NX')
  return redis.call('GET', prefix .. SUFFIX.epoch)
end
