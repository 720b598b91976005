-- Turns: which adapters run on a worker, and which gives its slot up for another. Part of
-- the dispatch library, after prefetch.lua.

local MOST_DRAINING = 1 / 4        -- of a worker's adapter slots, or one

-- Let an adapter that drained go on to start requests.
local function end_drain(pool, worker_id, state, adapter)
  forget_look(pool, worker_id)
  state.drain[adapter] = nil
  redis.call('HDEL', state.key, 'drain:' .. adapter)
end

-- End what a tenant's request has drain on a worker: it has left the queue, or runs. If another of
-- the tenant's waits for a slot there, that asks again.
local function end_drain_for(pool, tenant, request_id, worker_id)
  if not worker_id then
    return
  end
  redis.call('HDEL', request_key(pool.prefix, request_id), 'drains_on')
  local state = adapters_of(pool, worker_id)
  for adapter, waiting in pairs(state.drain) do
    if waiting == tenant then
      end_drain(pool, worker_id, state, adapter)
    end
  end
end

-- Return whether an adapter is to give its slot rather than another: it is of the tenant that would
-- have more of them, or has fewer requests running and so is done sooner, or began its turn first.
local function drains_before(state, held, adapter, other)
  local turn, others = state.turn[adapter], state.turn[other]
  if held[turn.tenant] ~= held[others.tenant] then
    return held[turn.tenant] > held[others.tenant]
  elseif state.run[adapter] ~= state.run[other] then
    return state.run[adapter] < state.run[other]
  elseif turn.since ~= others.since then
    return turn.since < others.since
  end
  return adapter < other
end

-- Return the adapter that is to give its slot to a tenant. Nil where the tenant is to have one
-- already, and where as many drain as may.
local function next_to_drain(state, tenant)
  local draining, held, found = 0, { [tenant] = 1 }, nil
  for adapter, turn in pairs(state.turn) do
    if state.drain[adapter] == tenant then
      return nil
    elseif state.drain[adapter] then
      draining = draining + 1
    else
      held[turn.tenant] = (held[turn.tenant] or 0) + 1
    end
  end
  if draining > 0 and draining >= state.slots * MOST_DRAINING then
    return nil
  end
  for adapter in pairs(state.turn) do
    if not state.drain[adapter]
      and (not found or drains_before(state, held, adapter, found)) then
      found = adapter
    end
  end
  return found
end

-- Let an adapter of a worker start no more requests, so that one of this tenant's has a slot there;
-- for one request on one worker.
local function drain_one(pool, worker_id, tenant, request)
  local state, drains_on = adapters_of(pool, worker_id), request.drains_on
  local adapter = next_to_drain(state, tenant)
  if adapter and not (drains_on and drains_on ~= worker_id and is_live(pool, drains_on)) then
    state.drain[adapter] = tenant
    redis.call('HSET', state.key, 'drain:' .. adapter, tenant)
    redis.call('HSET', request_key(pool.prefix, request.id), 'drains_on', worker_id)
  end
end

-- Return whether a worker that has a slot free may start a tenant's request that needs an adapter.
-- One that it has neither in memory nor in a slot would hold an adapter slot while it loads: it is
-- prefetched, here or where it is nearer, and left until it has come. After MOST_PASSES others it is
-- prefetched here in any case; and where there is no adapter slot for one that is here, one is made.
-- A worker that could not get it, or never tells, may have the request. As requests are tried in
-- their order, a slot is the first's that needs one; those behind it run with what is there.
local function may_run_adapter(pool, worker_id, tenant, request)
  local state, adapter = adapters_of(pool, worker_id), request.adapter
  if state.drain[adapter] and has_adapter_slot(state) then
    end_drain(pool, worker_id, state, adapter)
  end
  local near, may_wait = nearness(pool, worker_id, adapter), request.passes < MOST_PASSES
  local is_here = (near or level_of(pool, worker_id, adapter) or COMING) >= MEMORY
  local is_ready = is_here or may_load_in_slot(pool, worker_id, adapter)
  if near and is_ready then
    return true
  elseif is_ready and not may_wait and state.slots > 0 then
    drain_one(pool, worker_id, tenant, request)
  elseif not is_ready and near and not may_wait then
    prefetch_here(pool, worker_id, adapter, request.path)
  elseif not is_ready and (state.coming[adapter] or 0) + COMING_MS < pool.now then
    prefetch(pool, adapter, 1, request.path, near and worker_id)
  end
  return false
end

-- Note that an adapter begins to run on a worker for a request of this path: no other has to drain for
-- its tenant.
local function begin_turn(pool, worker_id, state, path, adapter)
  local tenant = path.tenant
  add_up(state, 'distinct', 1)
  state.turn[adapter] = { since = pool.now, tenant = tenant, path = path.text }
  redis.call('HSET', state.key, 'turn:' .. adapter,
    string.format('%.0f %s %s', pool.now, tenant, path.text))
  for other, waiting in pairs(state.drain) do
    if waiting == tenant then
      end_drain(pool, worker_id, state, other)
    end
  end
  end_prefetch(state, adapter)
  if not level_of(pool, worker_id, adapter) then
    set_level(pool, worker_id, adapter, COMING)
  end
end

-- Note that the last request with an adapter has left a worker. The worker has said by now how near
-- it has that; of what it did not, nothing is known.
local function end_turn(pool, worker_id, state, adapter)
  add_up(state, 'distinct', -1)
  forget_look(pool, worker_id)
  state.run[adapter], state.turn[adapter], state.drain[adapter] = nil, nil, nil
  redis.call('HDEL', state.key, 'run:' .. adapter, 'turn:' .. adapter, 'drain:' .. adapter)
  if level_of(pool, worker_id, adapter) == COMING then
    set_level(pool, worker_id, adapter, nil)
  end
end

-- Count one request of a path with an adapter more (1) or fewer (-1) among those that run on a worker.
local function note_adapter(pool, worker_id, path, adapter, change)
  if not adapter or adapter == '' then
    return
  end
  local state = adapters_of(pool, worker_id)
  local before = state.run[adapter] or 0
  local count = math.max(0, before + change)
  if count > 0 then
    state.run[adapter] = count
    redis.call('HSET', state.key, 'run:' .. adapter, count)
  end
  if count > 0 and before == 0 then
    begin_turn(pool, worker_id, state, path, adapter)
  elseif count == 0 and before > 0 then
    end_turn(pool, worker_id, state, adapter)
  end
end
