-- Adapters: which worker holds which, and when a cold one gets its turn. Fourth part of the dispatch
-- library.
--
-- A worker's hash `adapters:<worker>` has `slots` (adapters at once), `resident` (those it has
-- posted, between commas), `draining` (those that it starts no more, to make room) and for each adapter
-- `run:<adapter>`, its running requests. Only requests with an adapter look here.

local MOST_PASSES = 8              -- others that a request lets by where it could not run at once

local function adapters_of(pool, worker_id)
  pool.adapters = pool.adapters or {}
  local state = pool.adapters[worker_id]
  if not state then
    state = { key = pool.prefix .. ':adapters:' .. worker_id, slots = 0, resident = ',', draining = ',',
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

local function is_draining(state, adapter)
  return string.find(state.draining, ',' .. adapter .. ',', 1, true) ~= nil
end

local function is_resident(pool, worker_id, adapter)
  local state = adapters_of(pool, worker_id)
  return not is_draining(state, adapter) and (state.running[adapter] ~= nil
    or state.distinct < state.slots and string.find(state.resident, ',' .. adapter .. ',', 1, true) ~= nil)
end

local function has_adapter_slot(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  return state.distinct < state.slots
end

-- Of the adapters that run here the hottest, the one with most requests, starts no more of them; once
-- for a request, and never do all drain.
local function drain_one(pool, state, request)
  local draining = select(2, string.gsub(state.draining, '[^,]+', ''))
  if draining > 0 and draining >= state.slots - 1
    or redis.call('HSETNX', request_key(pool.prefix, request.id), 'drained', 1) == 0 then
    return
  end
  local hottest
  for adapter, count in pairs(state.running) do
    if not is_draining(state, adapter) and (not hottest or count > state.running[hottest]
      or (count == state.running[hottest] and adapter < hottest)) then
      hottest = adapter
    end
  end
  if hottest then
    state.draining = state.draining .. hottest .. ','
    redis.call('HSET', state.key, 'draining', state.draining)
  end
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
-- there is no room at all, room is made. A place is taken or made only for the first in the order that
-- needs one: those behind it run with what is there.
local function may_run_adapter(pool, worker_id, request, is_first)
  local state = adapters_of(pool, worker_id)
  if is_resident(pool, worker_id, request.adapter) then
    return true
  elseif not is_first then
    return false
  end
  local is_patient = request.passes < MOST_PASSES
  if not is_draining(state, request.adapter) and state.distinct < state.slots
    and not (is_patient and is_resident_elsewhere(pool, worker_id, request.adapter)) then
    return true
  end
  if not is_patient and state.distinct >= state.slots and state.slots > 0 then
    drain_one(pool, state, request)
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
    if is_draining(state, adapter) then
      state.draining = string.gsub(state.draining, ',' .. string.gsub(adapter, '%p', '%%%0') .. ',', ',', 1)
      redis.call('HSET', state.key, 'draining', state.draining)
    end
  end
  state.distinct = state.distinct + (before == 0 and count > 0 and 1 or 0)
    - (before > 0 and count == 0 and 1 or 0)
end
