-- LoRA adapters: which worker has which, how near, and who gets one ahead of a request. Fifth part
-- of the dispatch library; whose turn it is to have one run stands in turns.lua. Only requests with
-- an adapter look here; an adapter is one tenant's.
--
-- A worker posts an adapter's level when that changes: 1 on disk, 2 in memory, 3 in a slot of its
-- engine. 0 is one that a request, or a prefetch, has the worker get. `levels:<worker>` has them by
-- adapter, `adapter:<adapter>` by worker; the two change together, and what runs on a worker is in
-- both. `adapters:<worker>` has `slots` (adapters at once); of each adapter that runs there
-- `run:<adapter>`, its running requests, `turn:<adapter>`, since when (ms), whose it is and the path
-- of the first request, and `drain:<adapter>`, if it starts no more of them: the tenant that is to
-- have its slot; of each that is prefetched `coming:<adapter>`, since when (ms) and the path of the
-- request that waits for it, if one does, and of each that could not be `missed:<adapter>`,
-- when; `mute`, if a prefetch was not answered and nothing was posted since; and `closed`, when it
-- last gave a request back, since it can get no adapter.

local NEAREST = 8                  -- of the workers that have an adapter, how many are looked at,
local HOLDERS = 16                 -- and how many any of them
local LONGEST_NAME = 128           -- of an adapter, in bytes
local CHOICE = 4                   -- of all workers, how many an adapter may be prefetched to
local MOST_LOOKS = 8               -- adapters for which workers are looked for in one call
local COMING = 0
local MEMORY = 2
local SLOT = 3
local LONGEST_LOAD_US = 60000000   -- that is charged

-- Read a worker's adapters, once in a call; `distinct` is how many run.
local function adapters_of(pool, worker_id)
  pool.adapters = pool.adapters or {}
  local state = pool.adapters[worker_id]
  if state then
    return state
  end
  state = { key = pool.prefix .. ':adapters:' .. worker_id, slots = 0, distinct = 0, run = {},
    turn = {}, drain = {}, coming = {}, asked = {}, missed = {} }
  local found = redis.call('HGETALL', state.key)
  for index = 1, #found, 2 do
    local kind, adapter = string.match(found[index], '^(%l+):(.*)$')
    local value = found[index + 1]
    if kind == 'turn' then
      -- An earlier library has written no path.
      local since, tenant, path = string.match(value, '^(%d+) (%S+) ?(%S*)$')
      state.turn[adapter] = { since = tonumber(since), tenant = tenant,
        path = path ~= '' and path or nil }
    elseif kind == 'coming' then
      local since, path = string.match(value, '^(%d+) ?(%S*)$')
      state.coming[adapter], state.asked[adapter] = tonumber(since), path ~= '' and path or nil
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
    state.coming[adapter], state.asked[adapter] = nil, nil
    redis.call('HDEL', state.key, 'coming:' .. adapter)
  end
end

-- Forget what a worker could not get, of before a time.
local function forget_missed(state, before)
  for adapter, at in pairs(state.missed) do
    if at < before then
      state.missed[adapter] = nil
      redis.call('HDEL', state.key, 'missed:' .. adapter)
    end
  end
end

-- Note whether a worker leaves prefetches unanswered.
local function set_mute(state, is_mute)
  if is_mute and not state.mute then
    redis.call('HSET', state.key, 'mute', 1)
  elseif state.mute and not is_mute then
    redis.call('HDEL', state.key, 'mute')
  end
  state.mute = is_mute and 1 or nil
end

-- Note that a worker can get no adapter now: its disk is full, or the store away.
local function close_to_adapters(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  state.closed = pool.now
  redis.call('HSET', state.key, 'closed', string.format('%.0f', pool.now))
end

-- Return whether a worker could get no adapter a moment ago.
local function is_closed(pool, state)
  return state.closed ~= nil and pool.now - state.closed <= CLOSED_MS
end

-- Return whether another worker than these, each between two spaces, may have a request that needs
-- an adapter; any few are looked at.
local function is_adapter_elsewhere(pool, excluded)
  local _, count = string.gsub(excluded, '%S+', '')
  local some = redis.call('ZRANDMEMBER', pool.prefix .. ':slots', count + CHOICE)
  for _, worker_id in ipairs(some) do
    if not string.find(excluded, ' ' .. worker_id .. ' ', 1, true) and is_live(pool, worker_id)
      and adapters_of(pool, worker_id).slots > 0 then
      return true
    end
  end
  return false
end

-- Drop what a worker has posted: its process is another, or is shut out. What runs is to come.
function drop_levels(pool, worker_id)
  local state, levels = adapters_of(pool, worker_id), pool.prefix .. ':levels:' .. worker_id
  local adapters = redis.call('HKEYS', levels)
  redis.call('DEL', levels)
  forget_missed(state, math.huge)
  set_mute(state, false)
  state.closed = nil
  redis.call('HDEL', state.key, 'closed')
  for _, adapter in ipairs(adapters) do
    end_prefetch(state, adapter)
    if state.run[adapter] then
      set_level(pool, worker_id, adapter, COMING)
    else
      redis.call('ZREM', holders_key(pool, adapter), worker_id)
    end
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

-- Return whether text may be an adapter's name; it becomes a part of keys and of messages.
local function is_adapter_name(text)
  return #text <= LONGEST_NAME and string.find(text, '^%S+$') ~= nil
end

-- Return whether it is kept how near a worker has an adapter: of what it posts without end it is not.
local function is_kept(pool, worker_id, adapter)
  local levels = pool.prefix .. ':levels:' .. worker_id
  return redis.call('HLEN', levels) < MOST_LEVELS or redis.call('HEXISTS', levels, adapter) == 1
end

-- Charge who had a worker load an adapter what its others did not get for so long: a token in each
-- step for each sequence.
local function charge_load(pool, worker_id, path_text, load_us)
  local step_us, path = get(worker_of(pool, worker_id), 'step_us'), parse_path(path_text)
  local flow = open_flow(pool, path)
  if step_us > 0 and get(flow, 'weight') > 0 then
    local steps = math.min(load_us, LONGEST_LOAD_US) / step_us
    charge(pool, path, flow, cost(0, steps * sequences_held(pool, worker_id)))
    save(flow)
  end
end

-- Note what a worker has posted of an adapter; 0: it has it no more; and for how many microseconds
-- its engine has stood still to load it. Where it could not get what was prefetched, it may have
-- requests for that all the same, tries again, and says why not; after COMING_MS it is prefetched
-- again. Return whether requests for it may start now.
local function post_level(pool, worker_id, adapter, level, load_us)
  local state = adapters_of(pool, worker_id)
  local path_text = state.asked[adapter] or state.turn[adapter] and state.turn[adapter].path
  if load_us > 0 and path_text then
    charge_load(pool, worker_id, path_text, load_us)
  end
  if state.coming[adapter] and level < MEMORY then
    state.missed[adapter] = pool.now
    redis.call('HSET', state.key, 'missed:' .. adapter, string.format('%.0f', pool.now))
  end
  end_prefetch(state, adapter)
  set_level(pool, worker_id, adapter, level > 0 and is_kept(pool, worker_id, adapter) and level
    or state.run[adapter] and COMING or nil)
  return level >= MEMORY or state.missed[adapter] == pool.now
end

-- Where -----------------------------------------------------------------------------------------

-- Return how near a worker has an adapter that it has room for, -1 where it would have to get it
-- from the store; nil where it has no room, or cannot get it.
local function nearness(pool, worker_id, adapter)
  local state = adapters_of(pool, worker_id)
  if is_running(state, adapter) then
    return SLOT
  elseif state.drain[adapter] or not has_adapter_slot(state) then
    return nil
  end
  local level = level_of(pool, worker_id, adapter) or -1
  return (level >= MEMORY or not is_closed(pool, state)) and level or nil
end

-- Return some of the workers that have an adapter: the NEAREST of them, and any HOLDERS, so that the
-- dead, which stay until they are forgotten, do not hide the living of a hot one.
local function some_holders(pool, adapter)
  local key, found, seen = holders_key(pool, adapter), {}, {}
  for _, workers in ipairs{ redis.call('ZREVRANGE', key, 0, NEAREST - 1),
    redis.call('ZRANDMEMBER', key, HOLDERS) } do
    for _, worker_id in ipairs(workers) do
      if not seen[worker_id] then
        found[#found + 1], seen[worker_id] = worker_id, true
      end
    end
  end
  return found
end

-- Ahead of time ---------------------------------------------------------------------------------

-- Forget the prefetches of a worker that it has not told of; return how many there are left.
local function prefetches_of(pool, worker_id, state)
  local count = 0
  for adapter, since in pairs(state.coming) do
    if pool.now - since > COMING_MS then
      end_prefetch(state, adapter)
      set_mute(state, true)
      if level_of(pool, worker_id, adapter) == COMING and not state.run[adapter] then
        set_level(pool, worker_id, adapter, nil)
      end
    else
      count = count + 1
    end
  end
  return count
end

-- Return whether a worker could not get an adapter a while ago.
local function has_missed(pool, state, adapter)
  return state.missed[adapter] ~= nil and pool.now - state.missed[adapter] <= COMING_MS
end

-- Return how fit a worker is to get an adapter ahead of a request: the nearer it has that, then the
-- more it may be given, the better; nil where it has or gets it already, could not get it or any, or
-- gets as many as it has slots for.
local function fitness_for_prefetch(pool, worker_id, adapter)
  local state = adapters_of(pool, worker_id)
  local level = level_of(pool, worker_id, adapter) or COMING
  if not is_live(pool, worker_id) or is_closed(pool, state) or prefetches_of(pool, worker_id, state) >= state.slots
    or state.coming[adapter] or has_missed(pool, state, adapter) or state.run[adapter]
    or level >= MEMORY then
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

-- Tell a worker to get an adapter, for a request of this path, nil: for none.
local function begin_prefetch(pool, worker_id, adapter, path)
  local state = adapters_of(pool, worker_id)
  state.coming[adapter], state.asked[adapter] = pool.now, path and path.text
  redis.call('HSET', state.key, 'coming:' .. adapter,
    string.format('%.0f %s', pool.now, path and path.text or ''))
  if not level_of(pool, worker_id, adapter) then
    set_level(pool, worker_id, adapter, COMING)
  end
  redis.call('RPUSH', pool.prefix .. ':inbox:' .. worker_id, 'prefetch ' .. adapter .. '\n')
end

-- Have a worker get the adapter of a request that waits at a `position`, and has this path, nil where
-- there is no request yet. Where none has it: if so
-- few are served before it that it would wait for the load; who waits for long asks again when it is
-- passed over. Else on one more for each MOST_PASSES requests that wait for it, since the last of
-- those would be taken elsewhere.
local function prefetch(pool, adapter, position, path)
  pool.looked = pool.looked or {}
  if adapter == '' or pool.looked[adapter] or #pool.looked >= MOST_LOOKS then
    return
  end
  local waiting = tonumber(redis.call('HGET', pool.prefix .. ':adapters-waiting', adapter)) or 0
  if position > MOST_PASSES and waiting < MOST_PASSES then
    return  -- whoever has it, that is too early
  end
  pool.looked[adapter], pool.looked[#pool.looked + 1] = true, adapter
  local near, worker_id = look_for_holders(pool, adapter)
  if worker_id and (near == 0 and position <= MOST_PASSES
    or near > 0 and waiting >= MOST_PASSES * near) then
    begin_prefetch(pool, worker_id, adapter, path)
  end
end

-- Have a worker get an adapter, unless it has or gets that, or gets as many as it may.
local function prefetch_here(pool, worker_id, adapter, path)
  if fitness_for_prefetch(pool, worker_id, adapter) then
    begin_prefetch(pool, worker_id, adapter, path)
  end
end
