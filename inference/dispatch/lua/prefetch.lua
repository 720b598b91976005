-- Where an adapter's request is best off, and who gets an adapter ahead of one. Part of the
-- dispatch library, after adapters.lua.

local NEAREST = 8                  -- of the workers that have an adapter, how many are looked at,
local HOLDERS = 16                 -- and how many any of them
local MOST_LOOKS = 8               -- adapters for which workers are looked for in one call

-- Where -----------------------------------------------------------------------------------------

-- Return how near a worker has an adapter that it has room for, -1 where it would have to get it
-- from the store; nil where it has no room, or cannot get it.
local function nearness(pool, worker_id, adapter)
  local state = glance(pool, worker_id, adapter)
  if is_running(state, adapter) then
    return SLOT
  elseif state.drain[adapter] or not has_adapter_slot(state) then
    return nil
  end
  local level = level_of(pool, worker_id, adapter) or -1
  return (level >= MEMORY or not is_closed(pool, state)) and level or nil
end

-- Return some of the workers that have an adapter, and by worker how near: the NEAREST of them, and any
-- HOLDERS, so that the dead, which stay until they are forgotten, do not hide the living of a hot one.
local function some_holders(pool, adapter)
  local key, found, levels = holders_key(pool, adapter), {}, {}
  local function add_some(rows)
    for index = 1, #rows, 2 do
      if not levels[rows[index]] then
        found[#found + 1], levels[rows[index]] = rows[index], tonumber(rows[index + 1])
      end
    end
  end
  add_some(redis.call('ZREVRANGE', key, 0, NEAREST - 1, 'WITHSCORES'))
  if #found == NEAREST then
    add_some(redis.call('ZRANDMEMBER', key, HOLDERS, 'WITHSCORES'))
  end
  return found, levels
end

-- Return those of some workers that have a score of more than this in one of the pool's sets, and by
-- worker that score.
local function scored_above(pool, name, workers, least)
  local found, scored = {}, {}
  if #workers > 0 then
    local scores = redis.call('ZMSCORE', pool.prefix .. ':' .. name, unpack(workers))
    for index, worker_id in ipairs(workers) do
      local score = tonumber(scores[index]) or 0
      if score > least then
        found[#found + 1], scored[worker_id] = worker_id, score
      end
    end
  end
  return found, scored
end

-- Ahead of time ---------------------------------------------------------------------------------

-- Forget the prefetches that a worker has not told of, though it calls.
local function forget_unanswered(pool, worker_id)
  local state = adapters_of(pool, worker_id)
  for adapter, since in pairs(state.coming) do
    if pool.now - since > COMING_MS then
      end_prefetch(state, adapter)
      set_mute(state, true)
      if level_of(pool, worker_id, adapter) == COMING and not state.run[adapter] then
        set_level(pool, worker_id, adapter, nil)
      end
    end
  end
end

-- Return whether a worker was told to get an adapter, and may still tell of it.
local function is_coming(pool, state, adapter)
  return state.coming[adapter] ~= nil and pool.now - state.coming[adapter] <= COMING_MS
end

-- Return whether a worker could not get an adapter a while ago.
local function has_missed(pool, state, adapter)
  return state.missed[adapter] ~= nil and pool.now - state.missed[adapter] <= COMING_MS
end

-- Return whether a worker may have requests for an adapter that has not come: it could not get that a
-- while ago, and says why, or it leaves prefetches unanswered.
local function may_load_in_slot(pool, worker_id, adapter)
  local state = glance(pool, worker_id, adapter)
  return (state.mute or has_missed(pool, state, adapter)) and not is_closed(pool, state)
end

-- Return how fit a worker is to get an adapter ahead of a request: the nearer it has that, then the
-- more it may be given, the better; nil where it has or gets it already, could not get it or any, or
-- gets as many as it has slots for. `is_for_now`: nil, too, where it could not start the request now.
local function fitness_for_prefetch(pool, worker_id, adapter, is_for_now)
  local level = level_of(pool, worker_id, adapter) or COMING
  if level >= MEMORY or not is_live(pool, worker_id) then
    return nil
  end
  local state = glance(pool, worker_id, adapter)
  if is_closed(pool, state) or state.awaited >= state.slots or is_coming(pool, state, adapter)
    or has_missed(pool, state, adapter) or state.run[adapter] then
    return nil
  end
  local credit = tonumber(redis.call('ZSCORE', pool.prefix .. SUFFIX.free_slots, worker_id)) or 0
  if is_for_now and (credit <= 0 or not has_adapter_slot(state)) then
    return nil
  end
  return level * 2 ^ 20 + credit + (has_adapter_slot(state) and 0.5 or 0)
end

-- Return those of an adapter's holders that live and have it in memory, or get it, and the others.
local function look_for_holders(pool, adapter)
  local holders, levels = some_holders(pool, adapter)
  local near, others = {}, {}
  for _, worker_id in ipairs(scored_above(pool, 'heartbeats', holders,
    pool.now - WORKER_LEASE_MS)) do
    local state = levels[worker_id] < MEMORY and glance(pool, worker_id, adapter)
    if not state or state.run[adapter] or is_coming(pool, state, adapter) then
      near[#near + 1] = worker_id
    else
      others[#others + 1] = worker_id
    end
  end
  return near, others
end

-- Return how many of an adapter's requests these workers could start now, once they have it.
local function room_for(pool, adapter, workers)
  local free, credit = scored_above(pool, 'free-slots', workers, 0)
  local room = 0
  for _, worker_id in ipairs(free) do
    if nearness(pool, worker_id, adapter) then
      room = room + credit[worker_id]
    end
  end
  return room
end

-- Return the fittest of these workers, and of any CHOICE, to get an adapter, nil if none is;
-- `is_for_now`: of the CHOICE with most credit.
local function fittest_for_prefetch(pool, adapter, holders, is_for_now)
  local best, most = nil, nil
  local others = is_for_now
    and redis.call('ZREVRANGEBYSCORE', pool.prefix .. SUFFIX.free_slots, '+inf', '1', 'LIMIT', 0, CHOICE)
    or redis.call('ZRANDMEMBER', pool.prefix .. SUFFIX.slots, CHOICE)
  for _, workers in ipairs{ holders, others } do
    for _, worker_id in ipairs(workers) do
      local fit = fitness_for_prefetch(pool, worker_id, adapter, is_for_now)
      if fit and (not best or fit > most) then
        best, most = worker_id, fit
      end
    end
  end
  return best
end

-- Tell a worker to get an adapter, for a request of this path, nil: for none.
local function begin_prefetch(pool, worker_id, adapter, path)
  local state = glance(pool, worker_id, adapter)
  state.coming[adapter], state.asked[adapter] = pool.now, path and path.text
  if redis.call('HSET', state.key, 'coming:' .. adapter,
    string.format('%.0f %s', pool.now, path and path.text or '')) == 1 then
    add_up(state, 'awaited', 1)
  end
  if not level_of(pool, worker_id, adapter) then
    set_level(pool, worker_id, adapter, COMING)
  end
  redis.call('RPUSH', pool.prefix .. SUFFIX.inbox .. worker_id, 'prefetch ' .. adapter .. '\n')
end

-- Return why a new request is not taken: its adapter is in no worker's memory, and for its tenant
-- none loads more in this minute; or nil.
local function load_refusal(pool, path, adapter)
  if adapter == '' then
    return nil
  end
  local wait_ms, us = wait_for_loads(pool, path)
  if wait_ms == 0 or #look_for_holders(pool, adapter) > 0 then
    return nil
  end
  return { 'loads_full', wait_ms, math.ceil(us / 1000), path.load_ms }
end

-- Have a worker get an adapter, unless it has or gets that, or gets as many as it may, or has loaded
-- as much for the tenant as it may.
local function prefetch_here(pool, worker_id, adapter, path)
  if wait_for_loads(pool, path) == 0 and fitness_for_prefetch(pool, worker_id, adapter) then
    begin_prefetch(pool, worker_id, adapter, path)
  end
end

-- Have a worker get the adapter of a request that waits at a `position`, and has this path, nil where
-- there is no request yet. Where none has it: if so few are served before it that it would wait for
-- the load; who waits for long asks again when it is passed over. Else on one more for each
-- MOST_PASSES requests that wait for it, since the last of those would be taken elsewhere; or where
-- those that have it could not start all that wait, on one that could now: `here`, if that is known.
local function prefetch(pool, adapter, position, path, here)
  pool.looked = pool.looked or {}
  if adapter == '' or pool.looked[adapter] or #pool.looked >= MOST_LOOKS
    or wait_for_loads(pool, path) > 0 then
    return
  end
  local waiting = tonumber(redis.call('HGET', pool.prefix .. SUFFIX.adapters_waiting, adapter)) or 0
  if position > MOST_PASSES and waiting < MOST_PASSES then
    return  -- whoever has it, that is too early
  end
  pool.looked[adapter], pool.looked[#pool.looked + 1] = true, adapter
  local near, others = look_for_holders(pool, adapter)
  local is_for_now = waiting < MOST_PASSES * #near
  if #near == 0 and position > MOST_PASSES
    or is_for_now and (get(pool, 'free') <= 0 or room_for(pool, adapter, near) >= waiting) then
    return
  elseif is_for_now and here then
    return prefetch_here(pool, here, adapter, path)
  end
  local worker_id = fittest_for_prefetch(pool, adapter, others, is_for_now)
  if worker_id then
    begin_prefetch(pool, worker_id, adapter, path)
  end
end

-- Have a worker get the adapter of a request that has just been queued, as `prefetch`. Where many wait
-- for it one more worker is to have it for each MOST_PASSES of them, so it is asked for at those alone:
-- the others would find what the last one found.
local function prefetch_for_new(pool, adapter, position, path)
  if adapter == '' then
    return
  end
  local waiting = tonumber(redis.call('HGET', pool.prefix .. SUFFIX.adapters_waiting, adapter)) or 0
  if waiting < MOST_PASSES or waiting % MOST_PASSES == 0 then
    prefetch(pool, adapter, position, path)
  end
end
