-- The wait for a slot: how long it is, who is refused for that, and who gives a slot up. Part
-- of the dispatch library.

local LARGEST_QUEUE = 2            -- times the cap, which is shared out among the tenants
local IN_SLOT = 3                  -- the level of an adapter that the engine has
local UNKNOWN_MS = -1              -- no worker is there, or nothing has ended yet

-- Return whether the queue is full for a flow: a full queue refuses who already has its share of
-- it, so that one tenant cannot keep the others out.
local function is_full_for(pool, flow, length, most)
  if length < most then
    return false
  end
  local share = most * get(flow, 'share') / math.max(get(pool, 'weights'), get(flow, 'share'))
  return get(flow, 'waiting') >= math.floor(share) or length >= LARGEST_QUEUE * most
end

-- Return the reply that keeps a request out of the queue, or nil.
local function queue_refusal(pool, flow, length, most, position, wait_ms, most_wait_ms)
  if is_full_for(pool, flow, length, most) then
    return { 'full', length, wait_ms }
  elseif wait_ms > most_wait_ms then
    return { 'saturated', position, wait_ms }
  end
  return nil
end

-- Return the position of one more request of the flow, 0 where it need not wait, and its wait in
-- ms, or UNKNOWN_MS. Each of the flow's requests lets others by in proportion to their shares;
-- slots become free one after another, and a request holds its mean of slots and time.
local function forecast_wait(pool, flow, share, length)
  local waiting, slots = get(flow, 'waiting'), get(pool, 'slots')
  local is_below = is_below_share(pool, share, get(flow, 'running') + waiting, get(flow, 'tokens'),
    1)
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

-- Return whether an adapter is in a slot of some worker's engine.
local function is_loaded(pool, adapter)
  return redis.call('ZCOUNT', holders_key(pool, adapter), IN_SLOT, '+inf') > 0
end

-- Return whether the service owes a new request what its tier promises: it need not wait for longer
-- than that, as far as anybody can tell, and what its tenant has there already, running and waiting,
-- is less than its share. So nobody is owed anything for what waits behind its own excess, nor for
-- the load of its adapter. Where no worker is left the share is that of the slots that were there,
-- as requests go on coming.
local function is_owed(pool, flow, request, is_in_time)
  local slots = get(pool, 'slots')
  if slots > 0 then
    set(pool, 'slots_seen', slots)
  end
  if not is_in_time then
    return false
  end
  if slots > 0 and request.adapter ~= '' and not is_loaded(pool, request.adapter) then
    return false
  end
  local share, weights = get(flow, 'share'), get(pool, 'weights')
  local held = get(flow, 'running') + get(flow, 'waiting')
  if slots > 0 then
    return is_below_share(pool, share, held, get(flow, 'tokens'), request.sequences)
  end
  return held < math.max(1, get(pool, 'slots_seen')) * math.min(1, share / math.max(weights, share))
end

-- Return an envelope as the request's judgement has it, and that: 1 or 0, nil where none is asked
-- for. `owed_end` is how the envelope ends where the request is owed its promises.
local function judged(pool, flow, request, owed_end, is_in_time)
  if not owed_end or owed_end == '' then
    return request.envelope
  elseif not is_owed(pool, flow, request, is_in_time) then
    return request.envelope, 0
  end
  request.envelope = string.sub(request.envelope, 1, -#owed_end - 1) .. owed_end
  return request.envelope, 1
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
