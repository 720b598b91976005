-- LoRA adapters: which worker holds which, and when a cold one gets its turn. Fifth part of the
-- dispatch library.
--
-- A worker's hash `adapters:<worker>` has `slots` (adapters at once), `resident` (those it has
-- posted, between commas), `draining` (those that it starts no more, to make room) and for each
-- adapter `run:<adapter>`, its running requests. `adapter:<adapter>` is the set of the workers that
-- can start a request with it and need not load it. Only requests with an adapter look here.

local MOST_PASSES = 8              -- others that a request lets by where it could not run at once
local HOLDERS = 16                 -- of the workers that have an adapter, how many are looked at

-- Return whether an adapter stands in a list between commas.
local function is_listed(list, adapter)
  return string.find(list, ',' .. adapter .. ',', 1, true) ~= nil
end

-- Return the adapters that a worker can start a request with without loading them, as keys.
local function startable_of(state)
  local found = {}
  for adapter in pairs(state.running) do
    found[adapter] = not is_listed(state.draining, adapter) or nil
  end
  if state.distinct < state.slots then
    for adapter in string.gmatch(state.resident, '[^,]+') do
      found[adapter] = not is_listed(state.draining, adapter) or nil
    end
  end
  return found
end

-- Read a worker's adapters, once in a call; `distinct` is how many run.
local function adapters_of(pool, worker_id)
  pool.adapters = pool.adapters or {}
  local state = pool.adapters[worker_id]
  if state then
    return state
  end
  state = { key = pool.prefix .. ':adapters:' .. worker_id, slots = 0, resident = ',',
    draining = ',', running = {}, distinct = 0 }
  local found = redis.call('HGETALL', state.key)
  for index = 1, #found, 2 do
    local field, value = found[index], found[index + 1]
    local adapter = string.match(field, '^run:(.*)$')
    if adapter then
      state.running[adapter] = tonumber(value)
      state.distinct = state.distinct + 1
    else
      state[field] = tonumber(value) or value
    end
  end
  state.worker_id, state.startable = worker_id, startable_of(state)
  pool.adapters[worker_id] = state
  return state
end

-- Put a worker among those that can start an adapter, or take it from them, where that has changed.
local function note_startable(pool, state)
  local before, after = state.startable, startable_of(state)
  for adapter in pairs(after) do
    if not before[adapter] then
      redis.call('SADD', pool.prefix .. ':adapter:' .. adapter, state.worker_id)
    end
  end
  for adapter in pairs(before) do
    if not after[adapter] then
      redis.call('SREM', pool.prefix .. ':adapter:' .. adapter, state.worker_id)
    end
  end
  state.startable = after
end

-- Note what a worker has posted: its adapter slots, and the adapters in them, between commas.
local function set_adapters(pool, worker_id, slots, resident)
  if slots <= 0 then
    return
  end
  local state, listed = adapters_of(pool, worker_id), ',' .. resident .. ','
  if state.slots ~= slots or state.resident ~= listed then
    state.slots, state.resident = slots, listed
    redis.call('HSET', state.key, 'slots', slots, 'resident', listed)
    note_startable(pool, state)
  end
end

-- Remove all that is kept of the adapters of a worker that is forgotten.
function forget_adapters(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  state.running, state.resident = {}, ','
  note_startable(pool, state)
  redis.call('DEL', state.key)
  pool.adapters[worker_id] = nil
end

-- Return whether a worker can start a request with the adapter without loading it.
local function is_resident(pool, worker_id, adapter)
  return adapters_of(pool, worker_id).startable[adapter] ~= nil
end

-- Return whether a worker has room for one more adapter.
local function has_adapter_slot(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  return state.distinct < state.slots
end

-- Let the hottest adapter of a worker, the one with most requests, start no more of them; once for
-- a request, and never so that all drain.
local function drain_one(pool, state, request)
  local draining = select(2, string.gsub(state.draining, '[^,]+', ''))
  if draining > 0 and draining >= state.slots - 1
    or redis.call('HSETNX', request_key(pool.prefix, request.id), 'drained', 1) == 0 then
    return
  end
  local hottest
  for adapter, count in pairs(state.running) do
    if not is_listed(state.draining, adapter) and (not hottest or count > state.running[hottest]
      or (count == state.running[hottest] and adapter < hottest)) then
      hottest = adapter
    end
  end
  if hottest then
    state.draining = state.draining .. hottest .. ','
    redis.call('HSET', state.key, 'draining', state.draining)
    note_startable(pool, state)
  end
end

-- Return whether another live worker can start a request with the adapter without loading it; dead
-- ones stay in the set until they are forgotten, so a few of it are looked at.
local function is_resident_elsewhere(pool, worker_id, adapter)
  local able = redis.call('SRANDMEMBER', pool.prefix .. ':adapter:' .. adapter, HOLDERS)
  for _, other_id in ipairs(able) do
    if other_id ~= worker_id and worker_of(pool, other_id).values.kv and is_live(pool, other_id) then
      return true
    end
  end
  return false
end

-- Return whether a worker that has a slot free may start a request that needs an adapter. One that
-- it would have to load is left to a worker that has it, until MOST_PASSES others went by; from
-- then on, where there is no adapter slot at all, one is made. A slot is taken or made only for the
-- first in the order that needs one: those behind it run with what is there.
local function may_run_adapter(pool, worker_id, request, is_first)
  local state = adapters_of(pool, worker_id)
  if is_resident(pool, worker_id, request.adapter) then
    return true
  elseif not is_first then
    return false
  end
  local may_wait = request.passes < MOST_PASSES
  if not is_listed(state.draining, request.adapter) and state.distinct < state.slots
    and not (may_wait and is_resident_elsewhere(pool, worker_id, request.adapter)) then
    return true
  end
  if not may_wait and state.distinct >= state.slots and state.slots > 0 then
    drain_one(pool, state, request)
  end
  return false
end

-- Take an adapter that has drained out of those that drain.
local function end_draining(state, adapter)
  local pattern = ',' .. string.gsub(adapter, '%p', '%%%0') .. ','
  state.draining = string.gsub(state.draining, pattern, ',', 1)
  redis.call('HSET', state.key, 'draining', state.draining)
end

-- Count one request with the adapter more (1) or fewer (-1) among those that run on a worker.
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
    if is_listed(state.draining, adapter) then
      end_draining(state, adapter)
    end
  end
  state.distinct = state.distinct + (before == 0 and count > 0 and 1 or 0)
    - (before > 0 and count == 0 and 1 or 0)
  note_startable(pool, state)
end
