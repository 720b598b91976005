-- Adapters: which worker holds which, and when a cold one gets its turn. Fourth part of the dispatch
-- library.
--
-- A worker's hash `adapters:<worker>` has `slots` (adapters at once), `resident` (those it has
-- posted, between commas), `draining` (one that it starts no more, to make room) and for each adapter
-- `run:<adapter>`, its running requests. Only requests with an adapter look here.

local MOST_PASSES = 8              -- others that a request lets by where it could not run at once

local function adapters_of(pool, worker_id)
  pool.adapters = pool.adapters or {}
  local state = pool.adapters[worker_id]
  if not state then
    state = { key = pool.prefix .. ':adapters:' .. worker_id, slots = 0, resident = ',', draining = '',
      running = {}, distinct = 0 }
    local found = redis.call('HGETALL', state.key)
    for index = 1, #found, 2 do
      local adapter = string.match(found[index], '^run:(.*)$')
      if adapter then
        state.running[adapter] = tonumber(found[index + 1])
        state.distinct = state.distinct + 1
      else
        state[found[index]] = tonumber(found[index + 1]) or found[index + 1]
      end
    end
    pool.adapters[worker_id] = state
  end
  return state
end

local function set_adapters(pool, worker_id, slots, resident)
  if slots > 0 then
    redis.call('HSET', pool.prefix .. ':adapters:' .. worker_id, 'slots', slots, 'resident',
      ',' .. resident .. ',')
    pool.adapters = nil
  end
end

local function is_resident(pool, worker_id, adapter)
  local state = adapters_of(pool, worker_id)
  return state.draining ~= adapter and (state.running[adapter] ~= nil
    or state.distinct < state.slots and string.find(state.resident, ',' .. adapter .. ',', 1, true) ~= nil)
end

local function has_adapter_slot(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  return state.distinct < state.slots
end

-- Of the adapters that run here the one with fewest requests starts no more of them.
local function drain_one(state)
  local least
  for adapter, count in pairs(state.running) do
    if not least or count < state.running[least]
      or (count == state.running[least] and adapter < least) then
      least = adapter
    end
  end
  state.draining = least or ''
  redis.call('HSET', state.key, 'draining', state.draining)
end

local function is_resident_elsewhere(pool, worker_id, adapter)
  for other in pairs(pool.values) do
    local other_id = string.match(other, '^kv:(.*)$')
    if other_id and other_id ~= worker_id and is_live(pool, other_id)
      and is_resident(pool, other_id, adapter) then
      return true
    end
  end
  return false
end

-- Whether a worker that has a slot free may start a request that needs an adapter. One that it would
-- have to load is left to a worker that has it, until MOST_PASSES others went by; from then on, where
-- there is no room at all, room is made.
local function may_run_adapter(pool, worker_id, request)
  local state = adapters_of(pool, worker_id)
  if is_resident(pool, worker_id, request.adapter) then
    return true
  end
  local is_patient = request.passes < MOST_PASSES
  if state.draining ~= request.adapter and state.distinct < state.slots
    and not (is_patient and is_resident_elsewhere(pool, worker_id, request.adapter)) then
    return true
  end
  if not is_patient and state.distinct >= state.slots and state.slots > 0 and state.draining == '' then
    drain_one(state)
  end
  return false
end

-- One request with the adapter more (1) or fewer (-1) runs on the worker.
local function note_adapter(pool, worker_id, adapter, change)
  if not adapter or adapter == '' then
    return
  end
  local state = adapters_of(pool, worker_id)
  local before = state.running[adapter] or 0
  local count = math.max(0, before + change)
  if count > 0 then
    state.running[adapter] = count
    redis.call('HSET', state.key, 'run:' .. adapter, count)
  else
    state.running[adapter] = nil
    redis.call('HDEL', state.key, 'run:' .. adapter)
    if state.draining == adapter then
      state.draining = ''
      redis.call('HSET', state.key, 'draining', '')
    end
  end
  state.distinct = state.distinct + (before == 0 and count > 0 and 1 or 0)
    - (before > 0 and count == 0 and 1 or 0)
end
