-- Who is next for a slot: shares of the slots, the headroom kept for newcomers, ceilings of
-- classes. Part of the dispatch library.

local STARVED_MS = 5000         -- a class that waits this long is served next, whatever its counter
local ACTIVE_MS = 30000         -- an idle flow counts for so long when slots are shared out
local MOST_RETIRED = 16         -- idle flows that leave in one call
local HEADROOM_MISS = 0.002     -- the part of the newcomers that may find the headroom taken
local KV_HEADROOM = 1 / 16      -- of each worker's KV cache
local HEADROOM_CANDIDATES = 16  -- flows looked at for one that may have it
local BURST = 1 / 4             -- of what others could have: how far above its share a flow may be

-- Shares of the slots ---------------------------------------------------------------------------

-- Count a flow among those that slots are shared out to, at its weight of today.
local function note_active(pool, path, flow, weight)
  local share = weight * CLASS_WEIGHTS[path.class]
  set(flow, 'weight', weight)
  if redis.call('ZADD', pool.prefix .. SUFFIX.active_flows, pool.now, path.flow) == 1 then
    set(flow, 'share', share)
    add(pool, 'weights', share)
  elseif share ~= get(flow, 'share') then
    add(pool, 'weights', share - get(flow, 'share'))
    set(flow, 'share', share)
  end
end

-- Keep a flow's hash from expiring; only after its first `save`, since what is not there cannot
-- expire. Written again when half of the time is over.
local function keep_flow(pool, flow)
  if get(flow, 'expires') < pool.now + FLOW_TTL_MS / 2 then
    set(flow, 'expires', pool.now + FLOW_TTL_MS)
    save(flow)
    redis.call('PEXPIRE', flow.key, FLOW_TTL_MS)
  end
end

-- Take the long idle flows, a few a call, out of those that slots are shared out to.
local function retire_idle_flows(pool)
  local active = pool.prefix .. SUFFIX.active_flows
  local idle = redis.call('ZRANGEBYSCORE', active, '-inf', pool.now - ACTIVE_MS, 'LIMIT', 0,
    MOST_RETIRED)
  for _, flow in ipairs(idle) do
    local running, waiting, share = unpack(redis.call('HMGET', flow_key(pool, flow), 'running',
      'waiting', 'share'))
    if (tonumber(running) or 0) > 0 or (tonumber(waiting) or 0) > 0 then
      redis.call('ZADD', active, pool.now, flow)
    else
      redis.call('ZREM', active, flow)
      add(pool, 'weights', -(tonumber(share) or 0))
    end
  end
end

-- Return the tokens of a worker's KV cache, and those that its requests are expected to fill, as
-- they are charged.
local function kv_of(pool, worker_id)
  local worker = worker_of(pool, worker_id)
  return get(worker, 'kv'), get(worker, 'kv_used')
end

-- Return whether only flows below their share may have what is left of a worker's KV cache.
local function is_kv_for_newcomers(pool, worker_id)
  local tokens, used = kv_of(pool, worker_id)
  return tokens > 0 and used >= tokens * (1 - KV_HEADROOM)
end

-- Return whether a worker's KV cache has room for so many tokens. A worker that holds nothing is
-- given any request, whatever it may need.
local function has_kv_for(pool, worker_id, needed)
  local tokens, used = kv_of(pool, worker_id)
  return tokens == 0 or used == 0 or used + needed <= tokens
end

-- Return whether a flow that has `mine` of `all` is below its part, a burst above it included.
local function is_within(all, part, mine)
  local fair = all * part
  return mine < fair + BURST * (all - fair)
end

-- Return whether a flow that has so many sequences running, of so many tokens, is below its share of
-- the slots and, where workers report one, of the KV cache, with all but the last of the `wanted`
-- sequences that it is to start. Only the first of them counts where nothing of the flow runs, so
-- that none is too wide ever to start, and where the flow is alone.
local function is_below_share(pool, share, running, tokens, wanted)
  local weights, kv = get(pool, 'weights'), get(pool, 'kv')
  local part = weights > 0 and math.min(1, share / weights) or 1
  if running > 0 and part < 1 then
    running = running + wanted - 1
  end
  return is_within(get(pool, 'slots'), part, running) and (kv == 0 or is_within(kv, part, tokens))
end

-- Return how many slots only flows below their share may take: as many as newcomers have been found
-- to need, or what an operator has set.
local function headroom(pool)
  local most = math.floor(get(pool, 'slots') * HEADROOM_MOST)
  local kept = pool.values.kept or get(pool, 'slots') * HEADROOM_MOST
  return pool.values.headroom or math.max(0, math.min(most, math.ceil(kept)))
end

-- Return whether only flows below their share may start so many sequences at once on a worker: the
-- headroom would not be left whole. Of a request that is wider than all other slots, those have to
-- be free.
local function is_for_newcomers(pool, worker_id, sequences)
  local kept = headroom(pool)
  local needed = math.max(1, math.min(sequences, get(pool, 'slots') - kept))
  return get(pool, 'free') < kept + needed or is_kv_for_newcomers(pool, worker_id)
end

-- Learn from a newcomer, a flow below its share with nothing waiting, how much headroom is needed.
-- Each that had to wait adds a slot, each that had not takes a little away, so that in the long run
-- the part of those that wait is HEADROOM_MISS, whatever the pattern of arrivals (Robbins and
-- Monro, 1951).
local function note_newcomer(pool, has_waited)
  local most = get(pool, 'slots') * HEADROOM_MOST
  local kept = pool.values.kept or get(pool, 'slots') * HEADROOM_MOST
  kept = kept + (has_waited and 1 - HEADROOM_MISS or -HEADROOM_MISS)
  set(pool, 'kept', math.max(math.min(1, most), math.min(most, kept)))
end

-- The choice ------------------------------------------------------------------------------------

-- Return whether a class has all the slots that it may have beside others. Its ceiling falls from
-- all slots, where nothing waits, to its part in CLASS_CEILINGS, where as many requests wait as
-- there are slots.
local function is_at_ceiling(pool, class)
  local slots = get(pool, 'slots')
  local saturation = slots > 0 and math.min(1, waiting_in(pool) / slots) or 1
  local ceiling = 1 - saturation * (1 - CLASS_CEILINGS[class])
  return get(pool, class .. ':running') >= ceiling * slots
end

-- Return whether a class that waits is served before another: starved ones first, then the least
-- served for its weight; after all others those that are at their ceiling.
local function is_class_before(a, b)
  if a.starved ~= b.starved then
    return a.starved < b.starved
  elseif a.is_last ~= b.is_last then
    return b.is_last
  elseif a.counter ~= b.counter then
    return a.counter < b.counter
  end
  return a.name < b.name
end

-- Return the classes that wait, in the order in which they are served, and their least counter.
local function waiting_classes(pool)
  local waiting, least = {}, math.huge
  for _, class in ipairs(CLASSES) do
    if get(pool, class .. ':waiting') > 0 then
      local served, counter = get(pool, class .. ':served'), get(pool, class .. ':counter')
      least = math.min(least, counter)
      local starved = pool.now - served > STARVED_MS and served or math.huge
      waiting[#waiting + 1] = { name = class, counter = counter, starved = starved,
        is_last = starved == math.huge and is_at_ceiling(pool, class) }
    end
  end
  table.sort(waiting, is_class_before)
  return waiting, least
end

-- Return whether a tenant may have a slot of the headroom, which would put it this far ahead of the
-- least served of its class.
local function may_have_headroom(pool, class, tenant, ahead)
  local weight, share, running, tokens = unpack(redis.call('HMGET',
    flow_key(pool, class .. ':' .. tenant), 'weight', 'share', 'running', 'tokens'))
  return ahead * (tonumber(weight) or 1) <= HEADROOM_QUANTUM
    and is_below_share(pool, tonumber(share) or 0, tonumber(running) or 0, tonumber(tokens) or 0, 1)
end

-- Return the tenant that is next of those in a sorted set of a class, nil where there is none, and
-- the least counter of the class. In the headroom that is the least served flow that is below its
-- share, and no further ahead of the least served of all than the quantum; `held_back` is the
-- counter of one that is not in the set, if there is one.
local function next_tenant(pool, class, key, for_newcomers, held_back)
  local tenant, counter = unpack(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES'))
  counter = tonumber(counter)
  if not tenant or not for_newcomers then
    return tenant, counter and math.min(counter, held_back or counter)
  end
  local least = math.min(counter, held_back or counter)
  if may_have_headroom(pool, class, tenant, counter - least) then
    return tenant, least
  end
  local others = redis.call('ZRANGE', key, 1, HEADROOM_CANDIDATES - 1, 'WITHSCORES')
  for index = 1, #others, 2 do
    local other = others[index]
    counter = tonumber(others[index + 1])
    if may_have_headroom(pool, class, other, counter - least) then
      return other, least
    end
  end
  return nil, least
end

-- Take the earliest of a key's requests that need one of these adapters out of `requests`; return
-- its id, or nil. One that this call has passed over is there no more.
local function pop_with_adapter(pool, path, adapters)
  local requests, first, least = pool.prefix .. SUFFIX.waiting_requests .. path.text, nil, nil
  for _, adapter in ipairs(adapters) do
    local request_id, deadline_ms = unpack(redis.call('ZRANGE', requests .. ':' .. adapter, 0, 0,
      'WITHSCORES'))
    deadline_ms = tonumber(deadline_ms)
    if request_id and (not first or deadline_ms < least)
      and redis.call('ZSCORE', requests, request_id) then
      first, least = request_id, deadline_ms
    end
  end
  if first then
    redis.call('ZREM', requests, first)
  end
  return first
end

-- Take a tenant's first request out of `requests`, of its first key one that needs one of these
-- adapters before others; return its id and path. The caller calls `note_left`.
local function pop_request(pool, class, tenant, adapters)
  local prefix = pool.prefix .. ':'
  local flow = class .. ':' .. tenant
  local project = redis.call('ZRANGE', prefix .. 'projects:' .. flow, 0, 0)[1]
  local key = redis.call('ZRANGE', prefix .. 'keys:' .. flow .. ':' .. project, 0, 0)[1]
  local path = make_path(class, tenant, project, key)
  return pop_with_adapter(pool, path, adapters)
    or redis.call('ZPOPMIN', prefix .. 'requests:' .. path.text)[1], path
end

-- Take the earliest of a tenant's requests that need no adapter out of `requests`, whichever key
-- it is of; return its id and path. The caller calls `note_left`.
local function pop_plain(pool, class, tenant)
  local request_id = redis.call('ZRANGE', plain_requests_key(pool, class .. ':' .. tenant), 0, 0)[1]
  local path = parse_path(redis.call('HGET', request_key(pool.prefix, request_id), 'path'))
  redis.call('ZREM', pool.prefix .. SUFFIX.waiting_requests .. path.text, request_id)
  return request_id, path
end

-- Raise the floors to the least counters of this moment: whoever joins later is no better off than
-- those that were the least served now.
local function note_served(pool, path, flow, least_class, least_tenant)
  raise(pool, 'floor', least_class)
  raise(pool, path.class .. ':floor', least_tenant)
  raise(flow, 'floor', get(flow, flow.project))
  raise(flow, flow.keys_floor, get(flow, flow.key_counter))
end
