#!lua name=penstock_dispatch_3
-- Who is served next, and what each was charged: class, then tenant, project and key by the
-- smallest weighted counter (VTC, Sheng et al., OSDI'24), then the earliest deadline. What this
-- guarantees, and why, is in docs/fairness.md. First part of the dispatch library; after it come
-- dispatch_workers.lua, dispatch_slots.lua, dispatch_attempts.lua and dispatch.lua.
--
-- A *flow* is what one tenant has in one class. Its hash holds its counter and those of its
-- projects and keys, so that a charge is one write. Only who has requests waiting is in a sorted
-- set: `tenants:<class>`, `projects:<flow>`, `keys:<flow>:<project>`, each scored by counter, and
-- at the bottom `requests:<path>`, scored by deadline. A path is `<class>:<tenant>:<project>:<key>`.

local INPUT_WEIGHT, OUTPUT_WEIGHT = 1, 2  -- of a token; a request's cost is counted in these units
local CLASS_WEIGHTS = { interactive = 8, code = 4, documents = 2, batch = 1 }
local STARVED_MS = 5000         -- a class that waits for so long is served next, whatever its counter
local FLOW_TTL_MS = 86400000    -- what an absent tenant's debt and history are remembered for
local ACTIVE_MS = 30000         -- an idle flow still counts when slots are shared out for so long
local FIRST_OUTPUT_ESTIMATE = 256   -- tokens, in a pool that has finished nothing yet
local OWN_HISTORY, POOL_HISTORY = 0.2, 0.05  -- weight of the newest request in an average

local HEADROOM_MISS = 0.005     -- the part of the newcomers that may find the headroom taken
local HEADROOM_FIRST, HEADROOM_MOST = 1 / 16, 1 / 8  -- of the pool's slots
local HEADROOM_QUANTUM = 4096   -- units that headroom may put a flow of weight 1 ahead of others
local HEADROOM_CANDIDATES = 16  -- flows looked at for one that may have it
local BURST = 1 / 4             -- of what others could have: how far above its share a flow may be

local CLASSES = { 'interactive', 'code', 'documents', 'batch' }

local function time_or(now)
  if now then
    return tonumber(now)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Numbers of a hash, which is read once, changed in memory and written once.
local function numbers_of(key, values)
  return { key = key, values = values, changed = {} }
end

local function get(numbers, field)
  return numbers.values[field] or 0
end

local function set(numbers, field, value)
  if numbers.values[field] ~= value then
    numbers.values[field] = value
    numbers.changed[field] = value
  end
end

-- Nothing that is counted here is ever below zero, also after a flow's history has expired.
local function add(numbers, field, amount)
  set(numbers, field, math.max(0, get(numbers, field) + amount))
end

local function raise(numbers, field, to)
  set(numbers, field, math.max(get(numbers, field), to))
end

local function save(numbers)
  local arguments = {}
  for field, value in pairs(numbers.changed) do
    arguments[#arguments + 1] = field
    arguments[#arguments + 1] = value
  end
  if #arguments > 0 then
    redis.call('HSET', numbers.key, unpack(arguments))
    numbers.changed = {}
  end
end

-- The scheduler's view of one pool during one call.
local function open_pool(prefix, now)
  local key, values = prefix .. ':scheduler', {}
  local found = redis.call('HGETALL', key)
  for index = 1, #found, 2 do
    values[found[index]] = tonumber(found[index + 1])
  end
  local pool = numbers_of(key, values)
  pool.prefix, pool.now = prefix, now
  return pool
end

local function make_path(class, tenant, project, key)
  local flow = class .. ':' .. tenant
  return { class = class, tenant = tenant, project = project, key = key, flow = flow,
    projects = 'projects:' .. flow, keys = 'keys:' .. flow .. ':' .. project,
    text = flow .. ':' .. project .. ':' .. key }
end

local function parse_path(text)
  return make_path(string.match(text, '^([^:]*):([^:]*):([^:]*):([^:]*)$'))
end

-- A flow whose hash has expired counts as one of weight 1.
local function weight_of(flow)
  return flow.values.weight or 1
end

local function flow_key(pool, flow)
  return pool.prefix .. ':flow:' .. flow
end

-- A flow's numbers, with those of one project and one key of it.
local function open_flow(pool, path)
  local project, key = 'project:' .. path.project, 'key:' .. path.project .. ':' .. path.key
  local keys_floor = 'floor:' .. path.project
  local id = flow_key(pool, path.flow)
  local found = redis.call('HMGET', id, 'counter', 'weight', 'share', 'running', 'waiting', 'output',
    'ratio', 'floor', 'expires', project, keys_floor, key)
  local flow = numbers_of(id, { counter = tonumber(found[1]), weight = tonumber(found[2]),
    share = tonumber(found[3]), running = tonumber(found[4]), waiting = tonumber(found[5]),
    output = tonumber(found[6]), ratio = tonumber(found[7]), floor = tonumber(found[8]),
    expires = tonumber(found[9]), [project] = tonumber(found[10]),
    [keys_floor] = tonumber(found[11]), [key] = tonumber(found[12]) })
  flow.project, flow.key_counter, flow.keys_floor = project, key, keys_floor
  return flow
end

-- Charges and refunds ---------------------------------------------------------------------------

local function cost(input_tokens, output_tokens)
  return INPUT_WEIGHT * input_tokens + OUTPUT_WEIGHT * output_tokens
end

local function charge(pool, path, flow, units)
  if units == 0 then
    return
  end
  add(pool, path.class .. ':counter', units / CLASS_WEIGHTS[path.class])
  add(flow, 'counter', units / weight_of(flow))
  add(flow, flow.project, units)
  add(flow, flow.key_counter, units)
  local prefix = pool.prefix .. ':'
  redis.call('ZADD', prefix .. 'tenants:' .. path.class, 'XX', get(flow, 'counter'), path.tenant)
  redis.call('ZADD', prefix .. path.projects, 'XX', get(flow, flow.project), path.project)
  redis.call('ZADD', prefix .. path.keys, 'XX', get(flow, flow.key_counter), path.key)
end

-- What a request is charged before it is known: of its prompt, by how far this tenant's bounds
-- were from its prompts; of its output, what its outputs were. Never more than its bounds.
local function estimate(pool, flow, prompt_bound, output_bound)
  local ratio = flow.values.ratio or pool.values.ratio or 1
  local output = flow.values.output or pool.values.output or FIRST_OUTPUT_ESTIMATE
  return math.min(prompt_bound, math.ceil(prompt_bound * ratio)),
    math.min(output_bound, math.ceil(output))
end

local function remember(numbers, field, value, weight)
  local before = numbers.values[field]
  set(numbers, field, before and before + weight * (value - before) or value)
end

local function learn(pool, flow, prompt_bound, prompt_tokens, output_tokens)
  if output_tokens > 0 then
    remember(flow, 'output', output_tokens, OWN_HISTORY)
    remember(pool, 'output', output_tokens, POOL_HISTORY)
  end
  if prompt_tokens > 0 and prompt_bound > 0 then
    remember(flow, 'ratio', math.min(1, prompt_tokens / prompt_bound), OWN_HISTORY)
    remember(pool, 'ratio', math.min(1, prompt_tokens / prompt_bound), POOL_HISTORY)
  end
end

local function waiting_in(pool)
  local length = 0
  for _, class in ipairs(CLASSES) do
    length = length + get(pool, class .. ':waiting')
  end
  return length
end

-- Waiting ---------------------------------------------------------------------------------------

-- Who was idle starts level with the least served of those that wait, or where nobody waits, with
-- the last that was served: idleness earns nothing.
local function lift(set_key, numbers, field, floor)
  local least = redis.call('ZRANGE', set_key, 0, 0, 'WITHSCORES')
  raise(numbers, field, tonumber(least[2]) or floor)
  return #least == 0
end

local function lift_class(pool, class)
  local least
  for _, other in ipairs(CLASSES) do
    if get(pool, other .. ':waiting') > 0 then
      least = math.min(least or math.huge, get(pool, other .. ':counter'))
    end
  end
  raise(pool, class .. ':counter', least or get(pool, 'floor'))
  set(pool, class .. ':served', pool.now)
end

local function add_waiting(pool, path, flow, request_id, deadline_ms)
  local prefix, class = pool.prefix .. ':', path.class
  local requests, tenants = prefix .. 'requests:' .. path.text, prefix .. 'tenants:' .. class
  if get(pool, class .. ':waiting') == 0 then
    lift_class(pool, class)
  end
  add(pool, class .. ':waiting', 1)
  add(flow, 'waiting', 1)
  redis.call('ZADD', requests, deadline_ms, request_id)
  if redis.call('ZCARD', requests) > 1 then
    return
  end
  local is_first = lift(prefix .. path.keys, flow, flow.key_counter, get(flow, flow.keys_floor))
  redis.call('ZADD', prefix .. path.keys, get(flow, flow.key_counter), path.key)
  if not is_first then
    return
  end
  is_first = lift(prefix .. path.projects, flow, flow.project, get(flow, 'floor'))
  redis.call('ZADD', prefix .. path.projects, get(flow, flow.project), path.project)
  if is_first then
    lift(tenants, flow, 'counter', get(pool, class .. ':floor'))
    redis.call('ZADD', tenants, get(flow, 'counter'), path.tenant)
  end
end

-- After a request has left `requests:<path>`: whoever has none left waits no more.
local function note_left(pool, path)
  local prefix = pool.prefix .. ':'
  add(pool, path.class .. ':waiting', -1)
  if redis.call('EXISTS', prefix .. 'requests:' .. path.text) == 1 then
    return
  end
  redis.call('ZREM', prefix .. path.keys, path.key)
  if redis.call('EXISTS', prefix .. path.keys) == 1 then
    return
  end
  redis.call('ZREM', prefix .. path.projects, path.project)
  if redis.call('EXISTS', prefix .. path.projects) == 0 then
    redis.call('ZREM', prefix .. 'tenants:' .. path.class, path.tenant)
  end
end

-- A request that the worker which asked may not have: it takes up the place that it had.
local function put_back(pool, path, flow, request_id, deadline_ms)
  local prefix = pool.prefix .. ':'
  add(pool, path.class .. ':waiting', 1)
  add(flow, 'waiting', 1)
  redis.call('ZADD', prefix .. 'requests:' .. path.text, deadline_ms, request_id)
  redis.call('ZADD', prefix .. path.keys, get(flow, flow.key_counter), path.key)
  redis.call('ZADD', prefix .. path.projects, get(flow, flow.project), path.project)
  redis.call('ZADD', prefix .. 'tenants:' .. path.class, get(flow, 'counter'), path.tenant)
end

local function remove_waiting(pool, path, request_id)
  if redis.call('ZREM', pool.prefix .. ':requests:' .. path.text, request_id) == 1 then
    redis.call('HINCRBY', flow_key(pool, path.flow), 'waiting', -1)
    note_left(pool, path)
  end
end

-- A request that need not wait passes through an empty queue: level with the last one served.
local function pass_through(pool, path, flow)
  local class = path.class
  raise(pool, class .. ':counter', get(pool, 'floor'))
  raise(flow, 'counter', get(pool, class .. ':floor'))
  raise(flow, flow.project, get(flow, 'floor'))
  raise(flow, flow.key_counter, get(flow, flow.keys_floor))
  set(pool, 'floor', get(pool, class .. ':counter'))
  set(pool, class .. ':floor', get(flow, 'counter'))
  set(flow, 'floor', get(flow, flow.project))
  set(flow, flow.keys_floor, get(flow, flow.key_counter))
end

-- Shares of the slots ---------------------------------------------------------------------------

local function note_active(pool, path, flow, weight)
  local share = weight * CLASS_WEIGHTS[path.class]
  set(flow, 'weight', weight)
  if redis.call('ZADD', pool.prefix .. ':active', pool.now, path.flow) == 1 then
    set(flow, 'share', share)
    add(pool, 'weights', share)
  elseif share ~= get(flow, 'share') then
    add(pool, 'weights', share - get(flow, 'share'))
    set(flow, 'share', share)
  end
end

-- After its first `save`: a hash that is not there cannot expire. Half the time is left in hand.
local function keep_flow(pool, flow)
  if get(flow, 'expires') < pool.now + FLOW_TTL_MS / 2 then
    set(flow, 'expires', pool.now + FLOW_TTL_MS)
    save(flow)
    redis.call('PEXPIRE', flow.key, FLOW_TTL_MS)
  end
end

-- Slots are shared out among those that are there: the long idle ones leave, a few a call.
local function retire_idle_flows(pool)
  local active = pool.prefix .. ':active'
  local idle = redis.call('ZRANGEBYSCORE', active, '-inf', pool.now - ACTIVE_MS, 'LIMIT', 0, 16)
  for _, flow in ipairs(idle) do
    local counts = redis.call('HMGET', flow_key(pool, flow), 'running', 'waiting', 'share')
    if (tonumber(counts[1]) or 0) > 0 or (tonumber(counts[2]) or 0) > 0 then
      redis.call('ZADD', active, pool.now, flow)
    else
      redis.call('ZREM', active, flow)
      add(pool, 'weights', -(tonumber(counts[3]) or 0))
    end
  end
end

local function is_below_share(pool, share, running)
  local slots, weights = get(pool, 'slots'), get(pool, 'weights')
  local fair = weights > 0 and slots * math.min(1, share / weights) or slots
  return running < fair + BURST * (slots - fair)
end

-- Slots that only flows below their share may take: as many as newcomers have been found to need.
local function headroom(pool)
  local most = math.floor(get(pool, 'slots') * HEADROOM_MOST)
  local kept = pool.values.kept or get(pool, 'slots') * HEADROOM_FIRST
  return pool.values.headroom or math.max(0, math.min(most, math.ceil(kept)))
end

local function is_for_newcomers(pool)
  return get(pool, 'free') <= headroom(pool)
end

-- A newcomer, below its share and with nothing waiting, came to a busy pool. Each that had to wait
-- adds a slot, each that had not takes a little away, so that in the long run the part of those
-- that wait is HEADROOM_MISS, whatever the pattern of arrivals (Robbins and Monro, 1951).
local function note_newcomer(pool, has_waited)
  local most = get(pool, 'slots') * HEADROOM_MOST
  local kept = pool.values.kept or get(pool, 'slots') * HEADROOM_FIRST
  kept = kept + (has_waited and 1 - HEADROOM_MISS or -HEADROOM_MISS)
  set(pool, 'kept', math.max(math.min(1, most), math.min(most, kept)))
end

-- The choice ------------------------------------------------------------------------------------

-- Classes that wait: starved ones first, then the least served for its weight.
local function waiting_classes(pool)
  local waiting, least = {}, math.huge
  for _, class in ipairs(CLASSES) do
    if get(pool, class .. ':waiting') > 0 then
      local served = get(pool, class .. ':served')
      least = math.min(least, get(pool, class .. ':counter'))
      waiting[#waiting + 1] = { name = class, counter = get(pool, class .. ':counter'),
        starved = pool.now - served > STARVED_MS and served or math.huge }
    end
  end
  table.sort(waiting, function(a, b)
    if a.starved ~= b.starved then
      return a.starved < b.starved
    elseif a.counter ~= b.counter then
      return a.counter < b.counter
    end
    return a.name < b.name
  end)
  return waiting, least
end

local function may_have_headroom(pool, class, tenant, ahead)
  local flow = redis.call('HMGET', flow_key(pool, class .. ':' .. tenant), 'weight', 'share', 'running')
  return ahead * (tonumber(flow[1]) or 1) <= HEADROOM_QUANTUM
    and is_below_share(pool, tonumber(flow[2]) or 0, tonumber(flow[3]) or 0)
end

-- -> tenant, the least counter of the class. In the headroom the least served flow that is below
-- its share, and no further ahead of the least served of all than the quantum.
local function next_tenant(pool, class, for_newcomers)
  local key = pool.prefix .. ':tenants:' .. class
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  local tenant, least = first[1], tonumber(first[2])
  if not tenant or not for_newcomers or may_have_headroom(pool, class, tenant, 0) then
    return tenant, least
  end
  local others = redis.call('ZRANGE', key, 1, HEADROOM_CANDIDATES - 1, 'WITHSCORES')
  for index = 1, #others, 2 do
    if may_have_headroom(pool, class, others[index], tonumber(others[index + 1]) - least) then
      return others[index], least
    end
  end
  return nil, least
end

-- -> request id, its path. Takes it out of `requests`; the caller calls `note_left`.
local function pop_request(pool, class, tenant)
  local prefix = pool.prefix .. ':'
  local flow = class .. ':' .. tenant
  local project = redis.call('ZRANGE', prefix .. 'projects:' .. flow, 0, 0)[1]
  local key = redis.call('ZRANGE', prefix .. 'keys:' .. flow .. ':' .. project, 0, 0)[1]
  local path = make_path(class, tenant, project, key)
  return redis.call('ZPOPMIN', prefix .. 'requests:' .. path.text)[1], path
end

-- Whoever joins later is no better off than those that were the least served at this moment.
local function note_served(pool, path, flow, least_class, least_tenant)
  raise(pool, 'floor', least_class)
  raise(pool, path.class .. ':floor', least_tenant)
  raise(flow, 'floor', get(flow, flow.project))
  raise(flow, flow.keys_floor, get(flow, flow.key_counter))
end
