-- What loads of adapters take of a worker, whose engine stands still meanwhile: charged to who asks
-- for them, bounded by the minute, counted for reports. Part of the dispatch library, before
-- adapters.lua.
--
-- `loads:<tenant>` has `from`, when a tenant's minute began (ms), and `us`, for how long its loads
-- have held engines up since; `loads` for each adapter how often (`n:`) and for how long (`us:`) ever
-- since this Redis began, and `loaded` those of which that has changed.

local LONGEST_LOAD_US = 60000000   -- that is charged
local MINUTE_MS = 60000

-- Return the key of a tenant's minute, when that began, nil where none is under way, and the time of
-- its loads in us.
local function load_minute(pool, tenant)
  local key = pool.prefix .. SUFFIX.tenant_loads .. tenant
  local from, us = unpack(redis.call('HMGET', key, 'from', 'us'))
  from = tonumber(from)
  if not from or pool.now < from or pool.now >= from + MINUTE_MS then
    return key, nil, 0
  end
  return key, from, tonumber(us) or 0
end

-- Return for how many ms workers load nothing for requests of a path, since those of its tenant have
-- had all that its tier allows of this minute, and of how many us that was; 0: they do. A load that
-- has begun may go beyond.
local function wait_for_loads(pool, path)
  local most_ms = path and path.load_ms or 0
  if most_ms == 0 then
    return 0
  end
  local _, from, us = load_minute(pool, path.tenant)
  if us < most_ms * 1000 then
    return 0
  end
  return from + MINUTE_MS - pool.now, us
end

-- Add a load to its tenant's minute.
local function add_to_minute(pool, tenant, load_us)
  local key, from, us = load_minute(pool, tenant)
  redis.call('HSET', key, 'from', string.format('%.0f', from or pool.now), 'us', us + load_us)
  redis.call('PEXPIRE', key, 2 * MINUTE_MS)
end

-- Charge who had a worker load an adapter what its others did not get for so long: a token in each
-- step for each sequence.
local function charge_load(pool, worker_id, path_text, load_us)
  local step_us, path = get(worker_of(pool, worker_id), 'step_us'), parse_path(path_text)
  load_us = math.min(load_us, LONGEST_LOAD_US)
  add_to_minute(pool, path.tenant, load_us)
  local flow = open_flow(pool, path)
  if step_us > 0 and get(flow, 'weight') > 0 then
    charge(pool, path, flow, cost(0, load_us / step_us * sequences_held(pool, worker_id)))
    save(flow)
  end
end

-- Count a load of an adapter, whoever has asked for it; of so many adapters.
local function count_load(pool, adapter, load_us)
  local key = pool.prefix .. SUFFIX.loads
  if redis.call('HLEN', key) < 2 * MOST_LEVELS
    or redis.call('HEXISTS', key, 'n:' .. adapter) == 1 then
    redis.call('HINCRBY', key, 'n:' .. adapter, 1)
    redis.call('HINCRBY', key, 'us:' .. adapter, string.format('%.0f', load_us))
    redis.call('SADD', pool.prefix .. SUFFIX.loaded, adapter)
  end
end
