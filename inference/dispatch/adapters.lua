-- LoRA adapters: which worker has which, how near, and when a cold one gets its turn. Fifth part of
-- the dispatch library. Only requests with an adapter look here.
--
-- A worker posts an adapter's level when that changes: 1 on disk, 2 in memory, 3 in a slot of its
-- engine. 0 is one that a request, or a prefetch, has the worker get. `levels:<worker>` has them by
-- adapter, `adapter:<adapter>` by worker; the two change together, and what runs on a worker is in
-- both. `adapters:<worker>` has `slots` (adapters at once) and, of each adapter that runs there,
-- `run:<adapter>`, its running requests, and `drain:<adapter>` where it starts no more of them.

local MOST_PASSES = 8              -- others that a request lets by where it could not run at once
local HOLDERS = 16                 -- of the workers that have an adapter, how many are looked at
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
    drain = {} }
  local found = redis.call('HGETALL', state.key)
  for index = 1, #found, 2 do
    local kind, adapter = string.match(found[index], '^(%l+):(.*)$')
    if kind then
      state[kind][adapter] = tonumber(found[index + 1])
      state.distinct = state.distinct + (kind == 'run' and 1 or 0)
    else
      state[found[index]] = tonumber(found[index + 1])
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

-- Drop what a worker has posted: its process is another, or is shut out. What runs is to come.
function drop_levels(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  for _, adapter in ipairs(redis.call('HKEYS', pool.prefix .. ':levels:' .. worker_id)) do
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

-- Note how near a worker has adapters, where that has changed: worker_id, then each adapter and its
-- level, 0 for one that it has no more. Reply: OK.
local function post_adapters(keys, args)
  local prefix, worker_id = keys[1], args[1]
  local pool, refused = open_pool(prefix, 0), lease_error(prefix, worker_id)
  if refused then
    return refused
  end
  local state = adapters_of(pool, worker_id)
  for index = 2, #args, 2 do
    local adapter, level = args[index], tonumber(args[index + 1])
    if not level or level < 0 or level > SLOT then
      return redis.error_reply('ERR expected a level from 0 to 3, got ' .. args[index + 1])
    end
    set_level(pool, worker_id, adapter, level > 0 and level or state.run[adapter] and COMING or nil)
  end
  return redis.status_reply('OK')
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

-- Return whether another live worker has the adapter nearer than `level`.
local function is_nearer_elsewhere(pool, worker_id, adapter, level)
  for _, other_id in ipairs(some_holders(pool, adapter)) do
    if other_id ~= worker_id and level_of(pool, other_id, adapter) > level
      and is_live(pool, other_id) then
      return true
    end
  end
  return false
end

-- Let the hottest adapter of a worker, the one with most requests, start no more of them; once for
-- a request, and never so that all drain.
local function drain_one(pool, state, request)
  local draining = 0
  for _ in pairs(state.drain) do
    draining = draining + 1
  end
  if draining > 0 and draining >= state.slots - 1
    or redis.call('HSETNX', request_key(pool.prefix, request.id), 'drained', 1) == 0 then
    return
  end
  local hottest
  for adapter, count in pairs(state.run) do
    if not state.drain[adapter] and (not hottest or count > state.run[hottest]
      or (count == state.run[hottest] and adapter < hottest)) then
      hottest = adapter
    end
  end
  if hottest then
    state.drain[hottest] = 1
    redis.call('HSET', state.key, 'drain:' .. hottest, 1)
  end
end

-- Return whether a worker that has a slot free may start a request that needs an adapter. One that
-- it has neither in memory nor in a slot is left to a worker that has it nearer, until MOST_PASSES
-- others went by; from then on, where there is no adapter slot at all, one is made. A slot is taken
-- or made only for the first in the order that needs one: those behind it run with what is there.
local function may_run_adapter(pool, worker_id, request, is_first)
  local state, adapter = adapters_of(pool, worker_id), request.adapter
  if is_running(state, adapter) then
    return true
  elseif not is_first then
    return false
  end
  local near, may_wait = nearness(pool, worker_id, adapter), request.passes < MOST_PASSES
  if near and (near >= MEMORY
    or not (may_wait and is_nearer_elsewhere(pool, worker_id, adapter, near))) then
    return true
  end
  if not may_wait and not has_adapter_slot(state) and state.slots > 0 then
    drain_one(pool, state, request)
  end
  return false
end

-- Count one request with the adapter more (1) or fewer (-1) among those that run on a worker.
local function note_adapter(pool, worker_id, adapter, change)
  if not adapter or adapter == '' then
    return
  end
  local state = adapters_of(pool, worker_id)
  local before = state.run[adapter] or 0
  local count = math.max(0, before + change)
  state.run[adapter] = count > 0 and count or nil
  if count > 0 then
    redis.call('HSET', state.key, 'run:' .. adapter, count)
  end
  if count > 0 and before == 0 then
    state.distinct = state.distinct + 1
    if not level_of(pool, worker_id, adapter) then
      set_level(pool, worker_id, adapter, COMING)
    end
  elseif count == 0 and before > 0 then
    state.distinct, state.drain[adapter] = state.distinct - 1, nil
    redis.call('HDEL', state.key, 'run:' .. adapter, 'drain:' .. adapter)
    if level_of(pool, worker_id, adapter) == COMING then
      set_level(pool, worker_id, adapter, nil)
    end
  end
end
