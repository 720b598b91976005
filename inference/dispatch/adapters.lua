-- LoRA adapters: which worker has which, how near, and when a cold one gets its turn. Fifth part of
-- the dispatch library. Only requests with an adapter look here; an adapter is one tenant's.
--
-- A worker posts an adapter's level when that changes: 1 on disk, 2 in memory, 3 in a slot of its
-- engine. 0 is one that a request, or a prefetch, has the worker get. `levels:<worker>` has them by
-- adapter, `adapter:<adapter>` by worker; the two change together, and what runs on a worker is in
-- both. `adapters:<worker>` has `slots` (adapters at once); of each adapter that runs there
-- `run:<adapter>`, its running requests, `turn:<adapter>`, since when (ms) and whose it is, and
-- `drain:<adapter>`, if it starts no more of them: the tenant that is to have its slot; and
-- `coming:<adapter>` of each that is prefetched: since when (ms).

local HOLDERS = 16                 -- of the workers that have an adapter, how many are looked at
local CHOICE = 4                   -- of all workers, how many an adapter may be prefetched to
local MOST_DRAINING = 1 / 4        -- of a worker's adapter slots, or one
local COMING = 0
local MEMORY = 2
local SLOT = 3

-- Read a worker's adapters, once in a call; `distinct` is how many run.
local function adapters_of(pool, worker_id)
  pool.adapters = pool.adapters or {}
  local state = pool.adapters[worker_id]
  if state then
    return state
  end
  state = { key = pool.prefix .. ':adapters:' .. worker_id, slots = 0, distinct = 0, run = {},
    turn = {}, drain = {}, coming = {}, missed = {} }
  local found = redis.call('HGETALL', state.key)
  for index = 1, #found, 2 do
    local kind, adapter = string.match(found[index], '^(%l+):(.*)$')
    local value = found[index + 1]
    if kind == 'turn' then
      local since, tenant = string.match(value, '^(%d+) (.*)$')
      state.turn[adapter] = { since = tonumber(since), tenant = tenant }
    elseif kind == 'drain' then
      state.drain[adapter] = value
    elseif kind then
      state[kind][adapter] = tonumber(value)
      state.distinct = state.distinct + (kind == 'run' and 1 or 0)
    else
      state[found[index]] = tonumber(value)
    end
  end
  pool.adapters[worker_id] = state
  return state
end

-- Return whether a worker has room for one more adapter.
local function has_adapter_slot(state)
  return state.distinct < state.slots
end

-- Return whether an adapter runs on a worker and goes on to start requests.
local function is_running(state, adapter)
  return state.run[adapter] and not state.drain[adapter]
end

-- Return a tenant's adapters that run on a worker and go on to start requests.
local function running_adapters(pool, worker_id, tenant)
  local state, found = adapters_of(pool, worker_id), {}
  for adapter, turn in pairs(state.turn) do
    if turn.tenant == tenant and not state.drain[adapter] then
      found[#found + 1] = adapter
    end
  end
  return found
end

-- Return the tenants, as keys, that have an adapter running on a worker which goes on to start
-- requests, and more waiting for it.
local function tenants_with_adapters(pool, worker_id)
  local state, found = adapters_of(pool, worker_id), {}
  for adapter, turn in pairs(state.turn) do
    if not state.drain[adapter]
      and redis.call('HEXISTS', pool.prefix .. ':adapters-waiting', adapter) == 1 then
      found[turn.tenant] = true
    end
  end
  return found
end

-- Note how many adapters a worker's engine runs at once.
local function set_adapter_slots(pool, worker_id, slots)
  if slots > 0 then
    local state = adapters_of(pool, worker_id)
    if state.slots ~= slots then
      state.slots = slots
      redis.call('HSET', state.key, 'slots', slots)
    end
  end
end

-- Levels ----------------------------------------------------------------------------------------

-- Return the key of the set of an adapter's holders, each scored by its level.
local function holders_key(pool, adapter)
  return pool.prefix .. ':adapter:' .. adapter
end

-- Return how near a worker has an adapter, nil where it has it not.
local function level_of(pool, worker_id, adapter)
  return tonumber(redis.call('ZSCORE', holders_key(pool, adapter), worker_id))
end

-- Note how near a worker has an adapter; nil: not at all.
local function set_level(pool, worker_id, adapter, level)
  local levels = pool.prefix .. ':levels:' .. worker_id
  if level then
    redis.call('HSET', levels, adapter, level)
    redis.call('ZADD', holders_key(pool, adapter), level, worker_id)
  else
    redis.call('HDEL', levels, adapter)
    redis.call('ZREM', holders_key(pool, adapter), worker_id)
  end
end

-- Note that a worker has told of an adapter, or gets it anyway: it is no longer prefetched.
local function end_prefetch(state, adapter)
  if state.coming[adapter] then
    state.coming[adapter] = nil
    redis.call('HDEL', state.key, 'coming:' .. adapter)
  end
end

-- Drop what a worker has posted: its process is another, or is shut out. What runs is to come.
function drop_levels(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  for _, adapter in ipairs(redis.call('HKEYS', pool.prefix .. ':levels:' .. worker_id)) do
    end_prefetch(state, adapter)
    set_level(pool, worker_id, adapter, state.run[adapter] and COMING)
  end
end

-- Remove all that is kept of the adapters of a worker that is forgotten.
function forget_adapters(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  state.run = {}
  drop_levels(pool, worker_id)
  redis.call('DEL', state.key)
  pool.adapters[worker_id] = nil
end

-- Note what a worker has posted of an adapter; 0: it has it no more. Where it could not get what was
-- prefetched, it may have a request for that in this call, tries again, and says why not. Return
-- whether requests for it may start now.
local function post_level(pool, worker_id, adapter, level)
  local state = adapters_of(pool, worker_id)
  state.missed[adapter] = state.coming[adapter] ~= nil and level < MEMORY
  end_prefetch(state, adapter)
  set_level(pool, worker_id, adapter, level > 0 and level or state.run[adapter] and COMING or nil)
  return level >= MEMORY or state.missed[adapter]
end

-- Where -----------------------------------------------------------------------------------------

-- Return how near a worker has an adapter that it has room for, -1 where it would have to get it
-- from the store; nil where it has no room.
local function nearness(pool, worker_id, adapter)
  local state = adapters_of(pool, worker_id)
  if is_running(state, adapter) then
    return SLOT
  elseif state.drain[adapter] or not has_adapter_slot(state) then
    return nil
  end
  return level_of(pool, worker_id, adapter) or -1
end

-- Return some of the workers that have an adapter: any HOLDERS of them, so that the dead, which stay
-- until they are forgotten, do not hide the living of a hot one.
local function some_holders(pool, adapter)
  return redis.call('ZRANDMEMBER', holders_key(pool, adapter), HOLDERS)
end

-- Ahead of time ---------------------------------------------------------------------------------

-- Forget the prefetches of a worker that it has not told of; return how many there are left.
local function prefetches_of(pool, worker_id, state)
  local count = 0
  for adapter, since in pairs(state.coming) do
    if pool.now - since > COMING_MS then
      end_prefetch(state, adapter)
      if level_of(pool, worker_id, adapter) == COMING and not state.run[adapter] then
        set_level(pool, worker_id, adapter, nil)
      end
    else
      count = count + 1
    end
  end
  return count
end

-- Return how fit a worker is to get an adapter ahead of a request: the nearer it has that, then the
-- more it may be given, the better; nil where it has or gets it already, or gets as many as it has
-- slots for.
local function fitness_for_prefetch(pool, worker_id, adapter)
  local state = adapters_of(pool, worker_id)
  local level = level_of(pool, worker_id, adapter) or COMING
  if not is_live(pool, worker_id) or prefetches_of(pool, worker_id, state) >= state.slots
    or state.coming[adapter] or state.run[adapter] or level >= MEMORY then
    return nil
  end
  local credit = tonumber(redis.call('ZSCORE', pool.prefix .. ':free-slots', worker_id)) or 0
  return level * 2 ^ 20 + credit + (has_adapter_slot(state) and 0.5 or 0)
end

-- Return how many of an adapter's holders that live have it in memory, or get it, and the fittest to
-- get it too, nil if there is none; of those holders and of any CHOICE workers.
local function look_for_holders(pool, adapter)
  local near, best, most = 0, nil, nil
  local holders = some_holders(pool, adapter)
  for _, worker_id in ipairs(holders) do
    local state = adapters_of(pool, worker_id)
    prefetches_of(pool, worker_id, state)
    if is_live(pool, worker_id) and (state.run[adapter] or state.coming[adapter]
      or (level_of(pool, worker_id, adapter) or COMING) >= MEMORY) then
      near = near + 1
    end
  end
  for _, workers in ipairs{ holders,
    redis.call('ZRANDMEMBER', pool.prefix .. ':slots', CHOICE) } do
    for _, worker_id in ipairs(workers) do
      local fit = fitness_for_prefetch(pool, worker_id, adapter)
      if fit and (not best or fit > most) then
        best, most = worker_id, fit
      end
    end
  end
  return near, best
end

-- Have a worker get the adapter of a request that waits at a `position`. Where none has it: if so
-- few are served before it that it would wait for the load; who waits for long asks again when it is
-- passed over. Else on one more for each MOST_PASSES requests that wait for it, since the last of
-- those would be taken elsewhere.
local function prefetch(pool, adapter, position)
  if adapter == '' then
    return
  end
  local near, worker_id = look_for_holders(pool, adapter)
  local waiting = tonumber(redis.call('HGET', pool.prefix .. ':adapters-waiting', adapter)) or 0
  if not worker_id or (near == 0 and position > MOST_PASSES)
    or (near > 0 and waiting < MOST_PASSES * near) then
    return
  end
  local state = adapters_of(pool, worker_id)
  state.coming[adapter] = pool.now
  redis.call('HSET', state.key, 'coming:' .. adapter, string.format('%.0f', pool.now))
  if not level_of(pool, worker_id, adapter) then
    set_level(pool, worker_id, adapter, COMING)
  end
  redis.call('RPUSH', pool.prefix .. ':inbox:' .. worker_id, 'prefetch ' .. adapter .. '\n')
end

-- Turns -----------------------------------------------------------------------------------------

-- Let an adapter that drained go on to start requests.
local function end_drain(state, adapter)
  state.drain[adapter] = nil
  redis.call('HDEL', state.key, 'drain:' .. adapter)
end

-- Return the adapter that is to give its slot to a tenant: of the tenant that would have most of
-- them then, the one whose turn began first. Nil where the tenant is to have one already, and where
-- as many drain as may.
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
  for adapter, turn in pairs(state.turn) do
    local other = found and state.turn[found]
    if not state.drain[adapter] and (not found or held[turn.tenant] > held[other.tenant]
      or held[turn.tenant] == held[other.tenant] and (turn.since < other.since
        or turn.since == other.since and adapter < found)) then
      found = adapter
    end
  end
  return found
end

-- Let an adapter of a worker start no more requests, so that one of this tenant's has a slot there;
-- for one request on one worker.
local function drain_one(pool, worker_id, tenant, request)
  local state, key = adapters_of(pool, worker_id), request_key(pool.prefix, request.id)
  local adapter, drains_on = next_to_drain(state, tenant), redis.call('HGET', key, 'drains_on')
  if adapter and not (drains_on and drains_on ~= worker_id and is_live(pool, drains_on)) then
    state.drain[adapter] = tenant
    redis.call('HSET', state.key, 'drain:' .. adapter, tenant)
    redis.call('HSET', key, 'drains_on', worker_id)
  end
end

-- Return whether a worker that has a slot free may start a tenant's request that needs an adapter.
-- One that it has neither in memory nor in a slot would hold an adapter slot while it loads: it is
-- prefetched, here or where it is nearer, and left until it has come or MOST_PASSES others went by.
-- From then on, where there is no adapter slot, one is made. As requests are tried in their order,
-- a slot is the first's that needs one; those behind it run with what is there.
local function may_run_adapter(pool, worker_id, tenant, request)
  local state, adapter = adapters_of(pool, worker_id), request.adapter
  if state.drain[adapter] and has_adapter_slot(state) then
    end_drain(state, adapter)
  end
  local near, may_wait = nearness(pool, worker_id, adapter), request.passes < MOST_PASSES
  if near and (near >= MEMORY or not may_wait or state.missed[adapter]) then
    return true
  elseif not near and not may_wait and state.slots > 0 then
    drain_one(pool, worker_id, tenant, request)
  elseif (state.coming[adapter] or 0) + COMING_MS < pool.now then
    prefetch(pool, adapter, 1)
  end
  return false
end

-- Note that an adapter of a tenant begins to run on a worker: no other has to drain for the tenant.
local function begin_turn(pool, worker_id, state, tenant, adapter)
  state.distinct = state.distinct + 1
  state.turn[adapter] = { since = pool.now, tenant = tenant }
  redis.call('HSET', state.key, 'turn:' .. adapter, string.format('%.0f %s', pool.now, tenant))
  for other, waiting in pairs(state.drain) do
    if waiting == tenant then
      end_drain(state, other)
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
  state.distinct = state.distinct - 1
  state.run[adapter], state.turn[adapter], state.drain[adapter] = nil, nil, nil
  redis.call('HDEL', state.key, 'run:' .. adapter, 'turn:' .. adapter, 'drain:' .. adapter)
  if level_of(pool, worker_id, adapter) == COMING then
    set_level(pool, worker_id, adapter, nil)
  end
end

-- Count one request with a tenant's adapter more (1) or fewer (-1) among those that run on a worker.
local function note_adapter(pool, worker_id, tenant, adapter, change)
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
    begin_turn(pool, worker_id, state, tenant, adapter)
  elseif count == 0 and before > 0 then
    end_turn(pool, worker_id, state, adapter)
  end
end
