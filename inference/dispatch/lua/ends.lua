-- How requests end: finish and cancel. Part of the dispatch library before dispatch.lua, which says
-- how its functions are called.

local FINISHED_TTL_SECONDS = 600   -- how long a late question about a request can be answered
local MOST_DEAD_LETTERS = 1000
local LAST_FRAMES_TTL_SECONDS = 60 -- a gateway that lives has read them within a few

-- Keep a request that failed although nothing was wrong with it, with its payload, for a day.
local function keep_dead_letter(pool, request_id, envelope, entry)
  local letters = pool.prefix .. SUFFIX.dead_letters
  redis.call('XADD', letters, 'MAXLEN', '~', MOST_DEAD_LETTERS, '*', 'request', request_id,
    'envelope', envelope, 'record', entry)
  redis.call('XTRIM', letters, 'MINID', string.format('%.0f', pool.now - DEAD_LETTER_MS))
  redis.call('PEXPIRE', letters, DEAD_LETTER_MS)
end

-- Put the terminal record into the usage stream, and on the request itself for late questions such
-- as the sweeper's; return the reply of `finish`.
local function put_on_record(prefix, key, attempt, entry, output_tokens, origin)
  local stream_id = append_entry(prefix, 'record', entry, origin)
  redis.call('HSET', key, 'state', 'finished', 'record', entry, 'stream_id', stream_id)
  redis.call('HDEL', key, 'envelope')
  redis.call('EXPIRE', key, FINISHED_TTL_SECONDS)
  note_over(key, attempt, output_tokens, 'ended')
  return { 1, stream_id }
end

-- Finish a request: the one point of truth. `entry` is its encoded usage record, `output_tokens`
-- all that the entry counts, billed or not; `dead_letter` keeps it for operators; `origin` is
-- `<outbox id> <seq>` of a worker's record, or ''. Attempt 0 means "no worker has it". With mode
-- `lost` an unknown request is put on record, since Redis has lost it; mode `ask` changes nothing.
-- A repetition of the accepted call (an answer lost with its connection) is accepted again and
-- recorded once. `last_frames`, '' for none, are kept for the gateway: the end, and what it may not
-- have of the output, so that neither is lost with the worker or waits for it.
-- Reply: {1, id in the usage stream} accepted | {0, tokens of this attempt that are recorded
-- elsewhere (-1: unknown), reason} | {-1} the request is unknown | {2} the attempt is under way.
local function finish(keys, args)
  local prefix, request_id, attempt, entry, prompt_tokens, output_tokens, dead_letter, origin, mode,
    last_frames, now = keys[1], unpack(args)
  local key = request_key(prefix, request_id)
  local state, current_attempt, worker_id, record, stream_id, path_text, prompt_bound,
    charged_input, charged_output, started_ms, adapter, sequences, drains_on =
    unpack(redis.call('HMGET', key, 'state', 'attempt', 'worker', 'record', 'stream_id', 'path',
      'prompt', 'charged_input', 'charged_output', 'started_ms', 'adapter', 'sequences',
      'drains_on'))
  if not state and mode == 'lost' then
    return put_on_record(prefix, key, attempt, entry, output_tokens, origin)
  elseif not state then
    return { -1 }
  elseif state == 'finished' and record == entry then
    return { 1, stream_id }
  end
  local is_current = (state == 'queued' and attempt == '0')
    or (state == 'running' and attempt ~= '0' and attempt == current_attempt)
  if not is_current then
    return over_reply(key, attempt)
  elseif mode == 'ask' then
    return { 2 }
  end
  local pool, path = open_pool(prefix, now_ms(now)), parse_path(path_text)
  local flow = open_flow(pool, path)
  redis.call('ZREM', prefix .. SUFFIX.open_requests, request_id)
  release_payload(pool, flow, key)
  if dead_letter == '1' then
    keep_dead_letter(pool, request_id, redis.call('HGET', key, 'envelope'), entry)
  end
  if last_frames and last_frames ~= '' then
    redis.call('SET', prefix .. SUFFIX.last_frames .. request_id, last_frames, 'EX',
      LAST_FRAMES_TTL_SECONDS)
  end
  local accepted = put_on_record(prefix, key, attempt, entry, output_tokens, origin)
  if state == 'running' then
    local input, output = tonumber(prompt_tokens), tonumber(output_tokens)
    charged_input, charged_output = tonumber(charged_input), tonumber(charged_output)
    sequences = tonumber(sequences) or 1
    end_attempt(pool, path, flow, worker_id, { id = request_id, sequences = sequences,
      charged = charged_input + charged_output, adapter = adapter })
    remember(pool, 'held_ms', (pool.now - tonumber(started_ms)) * sequences, POOL_HISTORY)
    correct_charge(pool, path, flow, charged_input, charged_output, input, output)
    learn(pool, flow, tonumber(prompt_bound), input, output, sequences)
    save(flow)
    keep_flow(pool, flow)
    free_slot(pool, worker_id)
  else
    save(flow)
    redis.call('ZREM', prefix .. SUFFIX.queue, request_id)
    end_waiting(pool, redis.call('HGET', key, 'gateway'), request_id)
    remove_waiting(pool, path, request_id, adapter)
    end_drain_for(pool, path.tenant, request_id, drains_on)
  end
  save(pool)
  return accepted
end

-- Cancel a request. One that runs is stopped, and not requeued any more; one that waits is taken
-- out of the queue, so that no worker gets it between this call and the caller's `finish` of
-- attempt 0.
-- Reply: running | queued | terminal | unknown.
local function cancel(keys, args)
  local prefix, request_id = keys[1], unpack(args)
  local key = request_key(prefix, request_id)
  local state, attempt, worker_id, path_text, adapter, drains_on = unpack(redis.call('HMGET', key,
    'state', 'attempt', 'worker', 'path', 'adapter', 'drains_on'))
  if state == 'running' then
    redis.call('HSET', key, 'cancelled', 1)
    stop_attempt(prefix, worker_id, 'cancel', request_id, attempt)
    return 'running'
  elseif state == 'queued' then
    local pool, path = open_pool(prefix, 0), parse_path(path_text)
    redis.call('HSET', key, 'cancelled', 1)
    redis.call('ZREM', prefix .. SUFFIX.queue, request_id)
    remove_waiting(pool, path, request_id, adapter)
    end_drain_for(pool, path.tenant, request_id, drains_on)
    save(pool)
    return 'queued'
  elseif state == 'finished' then
    return 'terminal'
  end
  return 'unknown'
end
