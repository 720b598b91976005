-- More than one attempt: what a dead worker held or a batch request gave up waits again, and a worker
-- that an emptied Redis forgot takes its requests back. Seventh part of the dispatch library.

-- What becomes of an attempt's tokens once it is over: so many of them are told elsewhere, by the next
-- attempt that goes on from them or by the terminal record. All others are waste.
local function note_over(key, attempt, tokens, reason)
  redis.call('HSET', key, 'after:' .. attempt, tokens .. ' ' .. reason)
end

-- -> {0, tokens told elsewhere, -1 if nobody knows, reason} of an attempt that is over
local function over(key, attempt)
  local noted = redis.call('HGET', key, 'after:' .. attempt)
  local tokens, reason = string.match(noted or '-1 ended', '^(%S+) (%S+)$')
  return { 0, tonumber(tokens), reason }
end

-- ARGV: request_id attempt reason(worker_lost|frames_lost|preempted) envelope('' keeps it)
-- tokens that this envelope goes on from [now]
-- -> {requeued, attempt that is over} | {exhausted, tries} | {stale}
-- The request waits with its first deadline, so at the head of its key, and for as long as it might
-- have at first, since it may have run for longer than that; what the attempt was charged
-- is given back, since the end charges all of it once. A worker that was lost is given nothing any
-- more, this request not even if it comes back; one whose frames were lost is told to stop.
local function requeue(keys, args)
  local prefix, request_id, attempt, reason = keys[1], args[1], args[2], args[3]
  if reason ~= 'worker_lost' and reason ~= 'frames_lost' and reason ~= 'preempted' then
    return redis.error_reply('ERR expected worker_lost, frames_lost or preempted, got ' .. reason)
  end
  local key = request_key(prefix, request_id)
  local fields = redis.call('HMGET', key, 'state', 'attempt', 'worker', 'path', 'charged_input',
    'charged_output', 'deadline_ms', 'wait_ms', 'tries', 'excluded', 'preemptions', 'adapter',
    'cancelled', 'resumed')
  if fields[1] ~= 'running' or fields[2] ~= attempt or fields[13] then
    return { 'stale' }
  end
  local worker_id, tries = fields[3], (tonumber(fields[9]) or 0) + 1
  if reason ~= 'preempted' and tries >= MOST_TRIES then
    return { 'exhausted', tries }
  end
  local pool, path = open_pool(prefix, time_or(args[6])), parse_path(fields[4])
  local flow = open_flow(pool, path)
  local input, output = tonumber(fields[5]), tonumber(fields[6])
  end_attempt(pool, path, flow, request_id, worker_id, input + output, fields[12])
  charge(pool, path, flow, -cost(input, output))
  save(flow)
  if reason == 'worker_lost' then
    redis.call('HSET', key, 'tries', tries, 'excluded', (fields[10] or ' ') .. worker_id .. ' ')
    bench_worker(pool, worker_id)
  elseif reason == 'frames_lost' then
    redis.call('HSET', key, 'tries', tries)
    redis.call('RPUSH', prefix .. ':inbox:' .. worker_id, 'cancel ' .. request_id .. ' ' .. attempt .. '\n')
    free_slot(pool, worker_id)
    flow = open_flow(pool, path)
  else
    redis.call('HSET', key, 'preemptions', (tonumber(fields[11]) or 0) + 1)
    free_slot(pool, worker_id, 'interactive')
    flow = open_flow(pool, path)
  end
  local expires_ms = pool.now + tonumber(fields[8])
  redis.call('HSET', key, 'state', 'queued', 'worker', '', 'expires_ms', expires_ms)
  local resumed = fields[14] or '0'
  if args[4] ~= '' then
    resumed = args[5]
    redis.call('HSET', key, 'envelope', args[4], 'resumed', resumed)
  end
  note_over(key, attempt, resumed, reason)
  redis.call('ZADD', prefix .. ':queue', expires_ms, request_id)
  add_waiting(pool, path, flow, request_id, fields[7])
  save(flow)
  local other = worker_with_credit(pool, input + output, fields[12] or '')
  if other then
    hand_over(pool, other, take_up_to(pool, other, 1), 0)
  end
  save(pool)
  return { 'requeued', tonumber(attempt) }
end

-- ARGV: worker_id [now] and, for each request that the worker holds, a line `<request id> <attempt>
-- <class> <tenant> <project> <key> <weight> <prompt bound> <output bound> <gateway> <arrived_at_ms>
-- <ttft_target_ms> <max_wait_ms> <resumable> <resumed> [<adapter>]` and the envelope. -> ids of those that are
-- not this worker's any more. For a worker that has registered with a Redis that knew nothing of it.
local function adopt(keys, args)
  local prefix, worker_id, stale = keys[1], args[1], {}
  local pool = open_pool(prefix, time_or(args[2] ~= '' and args[2]))
  for place = 3, #args, 2 do
    local words = {}
    for word in string.gmatch(args[place], '%S+') do
      words[#words + 1] = word
    end
    local request_id, attempt, envelope = words[1], tonumber(words[2]), args[place + 1]
    local key = request_key(prefix, request_id)
    local known = redis.call('HMGET', key, 'state', 'attempt', 'worker')
    local is_mine = known[1] == 'running' and tonumber(known[2]) == attempt and known[3] == worker_id
    -- One that was withdrawn is for its gateway to end.
    local is_free = not known[1] or (known[1] == 'queued'
      and tonumber(known[2]) <= attempt + ATTEMPT_GAP
      and redis.call('ZSCORE', prefix .. ':queue', request_id))
    if is_free then
      local path = make_path(words[3], words[4], words[5], words[6])
      if known[1] then
        redis.call('ZREM', prefix .. ':queue', request_id)
        remove_waiting(pool, path, request_id)
      end
      local flow = open_flow(pool, path)
      note_active(pool, path, flow, tonumber(words[7]))
      save(flow)
      keep_flow(pool, flow)
      redis.call('HSET', key, 'path', path.text, 'gateway', words[10], 'prompt', words[8], 'output',
        words[9], 'envelope', envelope, 'resumable', words[14], 'resumed', words[15],
        'adapter', words[16] or '',
        'deadline_ms', tonumber(words[11]) + tonumber(words[12]),
        'expires_ms', tonumber(words[11]) + tonumber(words[13]), 'wait_ms', words[13])
      redis.call('ZADD', prefix .. ':open', words[11], request_id)
      -- The worker has posted no credit yet that this could take one of.
      add(pool, 'free', 1)
      start_attempt(pool, path, flow, { id = request_id, attempt = attempt - 1, envelope = envelope,
        prompt = tonumber(words[8]), output = tonumber(words[9]), resumable = words[14],
        preemptions = 0, adapter = words[16] or '' }, worker_id)
    elseif not is_mine then
      stale[#stale + 1] = request_id
    end
  end
  save(pool)
  return stale
end

-- ARGV: candidate -> the epoch of this Redis, which is the first candidate that it was told. Another
-- one than before means that all that was here has been lost.
local function epoch(keys, args)
  redis.call('SET', keys[1] .. ':epoch', args[1], 'NX')
  return redis.call('GET', keys[1] .. ':epoch')
end
