-- LoRA adapters: which worker has which, and how near. Where their requests are best off stands in
-- prefetch.lua, whose turn it is to have one run in turns.lua. Only requests with an adapter look
-- here; an adapter is one tenant's.
--
-- A worker posts an adapter's level when that changes: 1 on disk, 2 in memory, 3 in a slot of its
-- engine. 0 is one that a request, or a prefetch, has the worker get. `levels:<worker>` has them by
-- adapter, `adapter:<adapter>` by worker; the two change together, and what runs on a worker is in
-- both. `adapters:<worker>` has `slots` (adapters at once); of each adapter that runs there
-- `run:<adapter>`, its running requests, `turn:<adapter>`, since when (ms), whose it is and the path
-- of the first request, and `drain:<adapter>`, if it starts no more of them: the tenant that is to
-- have its slot; of each that is prefetched `coming:<adapter>`, since when (ms) and the path of the
-- request that waits for it, if one does, and of each that could not be `missed:<adapter>`,
-- when; `distinct` and `awaited`, how many run and are prefetched; `mute`, if a prefetch was not
-- answered and nothing was posted since; and `closed`, when it last gave a request back, since it
-- can get no adapter.
--
-- Of a worker that is called for, all of this is read. Of others, which a call may look at two dozen
-- of, only what they are to one adapter: `glance`.

local LONGEST_NAME = 128           -- of an adapter, in bytes
local CHOICE = 4                   -- of all workers, how many an adapter may be prefetched to
local MOST_DROPPED = 1000          -- levels of a worker, in one call
local COMING = 0
local MEMORY = 2
local SLOT = 3

-- Read a worker's adapters, once in a call.
local function adapters_of(pool, worker_id)
  pool.adapters = pool.adapters or {}
  local state = pool.adapters[worker_id]
  if state then
    return state
  end
  state = { key = pool.prefix .. SUFFIX.worker_adapters .. worker_id, slots = 0, run = {},
    turn = {}, drain = {}, coming = {}, asked = {}, missed = {} }
  local found, distinct, awaited = redis.call('HGETALL', state.key), 0, 0
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
      awaited = awaited + 1
    elseif kind == 'drain' then
      state.drain[adapter] = value
    elseif kind then
      state[kind][adapter] = tonumber(value)
      distinct = distinct + (kind == 'run' and 1 or 0)
    else
      state[found[index]] = tonumber(value)
    end
  end
  if #found > 0 and (state.distinct ~= distinct or state.awaited ~= awaited) then
    -- An earlier library has kept no sums.
    redis.call('HSET', state.key, 'distinct', distinct, 'awaited', awaited)
  end
  state.distinct, state.awaited = distinct, awaited
  pool.adapters[worker_id] = state
  return state
end

-- Read what a worker's adapters are to one of them: a part of what `adapters_of` has.
local function glance(pool, worker_id, adapter)
  if pool.adapters and pool.adapters[worker_id] then
    return pool.adapters[worker_id]
  end
  local key = pool.prefix .. SUFFIX.worker_adapters .. worker_id
  local slots, distinct, awaited, mute, closed, run, drain, coming, missed = unpack(
    redis.call('HMGET', key, 'slots', 'distinct', 'awaited', 'mute', 'closed', 'run:' .. adapter,
      'drain:' .. adapter, 'coming:' .. adapter, 'missed:' .. adapter))
  if slots and not distinct then
    return adapters_of(pool, worker_id)
  end
  return { key = key, slots = tonumber(slots) or 0, distinct = tonumber(distinct) or 0,
    awaited = tonumber(awaited) or 0, mute = tonumber(mute), closed = tonumber(closed),
    run = { [adapter] = tonumber(run) }, drain = { [adapter] = drain or nil },
    coming = { [adapter] = tonumber(string.match(coming or '', '^%d+')) }, asked = {},
    missed = { [adapter] = tonumber(missed) } }
end

-- Change one of a worker's sums.
local function add_up(state, name, change)
  state[name] = state[name] + change
  redis.call('HSET', state.key, name, state[name])
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
      and redis.call('HEXISTS', pool.prefix .. SUFFIX.adapters_waiting, adapter) == 1 then
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
      redis.call('HSET', state.key, 'slots', slots, 'distinct', state.distinct, 'awaited',
        state.awaited)
    end
  end
end

-- Levels ----------------------------------------------------------------------------------------

-- Return the key of the set of an adapter's holders, each scored by its level.
local function holders_key(pool, adapter)
  return pool.prefix .. SUFFIX.adapter_workers .. adapter
end

-- Return how near a worker has an adapter, nil where it has it not.
local function level_of(pool, worker_id, adapter)
  return tonumber(redis.call('ZSCORE', holders_key(pool, adapter), worker_id))
end

-- Note how near a worker has an adapter; nil: not at all.
local function set_level(pool, worker_id, adapter, level)
  local levels = pool.prefix .. SUFFIX.worker_levels .. worker_id
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
    add_up(state, 'awaited', -1)
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

-- Return whether a worker's engine runs adapters.
local function has_adapter_slots(pool, worker_id)
  local slots = redis.call('HGET', pool.prefix .. SUFFIX.worker_adapters .. worker_id, 'slots')
  return (tonumber(slots) or 0) > 0
end

-- Return whether another worker than these, each between two spaces, may have a request that needs
-- an adapter; any few are looked at.
local function is_adapter_elsewhere(pool, excluded)
  local _, count = string.gsub(excluded, '%S+', '')
  local some = redis.call('ZRANDMEMBER', pool.prefix .. SUFFIX.slots, count + CHOICE)
  for _, worker_id in ipairs(some) do
    if not string.find(excluded, ' ' .. worker_id .. ' ', 1, true) and is_live(pool, worker_id)
      and has_adapter_slots(pool, worker_id) then
      return true
    end
  end
  return false
end

-- Take a worker whose levels are dropped from some of the sets that it is in. What it has posted since
-- stays.
local function drop_some_levels(pool, worker_id)
  local some = redis.call('SPOP', pool.prefix .. ':dropped:' .. worker_id, MOST_DROPPED)
  for _, adapter in ipairs(some) do
    if not redis.call('HGET', pool.prefix .. SUFFIX.worker_levels .. worker_id, adapter) then
      redis.call('ZREM', holders_key(pool, adapter), worker_id)
    end
  end
  if #some < MOST_DROPPED then
    redis.call('SREM', pool.prefix .. ':dropping', worker_id)
  end
end

-- Drop what a worker has posted: its process is another, or is shut out. What runs is to come. Of a
-- worker that has many, the rest waits for calls of `drop_more_levels`.
function drop_levels(pool, worker_id)
  local state, prefix = adapters_of(pool, worker_id), pool.prefix
  forget_missed(state, math.huge)
  set_mute(state, false)
  state.closed = nil
  redis.call('HDEL', state.key, 'closed')
  for adapter in pairs(state.coming) do
    end_prefetch(state, adapter)
  end
  local levels = prefix .. SUFFIX.worker_levels .. worker_id
  local adapters = redis.call('HKEYS', levels)
  if #adapters == 0 then
    return
  end
  redis.call('DEL', levels)
  for first = 1, #adapters, MOST_DROPPED do
    redis.call('SADD', prefix .. ':dropped:' .. worker_id,
      unpack(adapters, first, math.min(first + MOST_DROPPED - 1, #adapters)))
  end
  redis.call('SADD', prefix .. ':dropping', worker_id)
  for adapter in pairs(state.run) do
    set_level(pool, worker_id, adapter, COMING)
  end
  drop_some_levels(pool, worker_id)
end

-- Go on to drop what some worker has posted.
function drop_more_levels(pool)
  local worker_id = redis.call('SRANDMEMBER', pool.prefix .. ':dropping')
  if worker_id then
    drop_some_levels(pool, worker_id)
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
  local levels = pool.prefix .. SUFFIX.worker_levels .. worker_id
  return redis.call('HLEN', levels) < MOST_LEVELS or redis.call('HEXISTS', levels, adapter) == 1
end

-- Note what a worker has posted of an adapter; 0: it has it no more; and for how many microseconds
-- its engine has stood still to load it. Where it could not get what was prefetched, it may have
-- requests for that all the same, tries again, and says why not; after COMING_MS it is prefetched
-- again. Return whether requests for it may start now.
local function post_level(pool, worker_id, adapter, level, load_us)
  local state = adapters_of(pool, worker_id)
  local path_text = state.asked[adapter] or state.turn[adapter] and state.turn[adapter].path
  if load_us > 0 then
    count_load(pool, adapter, load_us)
  end
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
