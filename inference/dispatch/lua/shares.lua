-- Who is served next, and what each was charged: class, then tenant, project and key by the
-- smallest weighted counter (VTC, Sheng et al., OSDI'24), then the earliest deadline. What this
-- guarantees, and why, is in docs/fairness.md. First part of the dispatch library, whose other
-- parts build on it in the order that inference/redis_functions.py gives. The prelude before it
-- has the constants of inference/lua_constants.py.
--
-- A *flow* is what one tenant has in one class. Its hash holds its counter and those of its
-- projects and keys, so that a charge is one write. Only who has requests waiting is in a sorted
-- set: `tenants:<class>`, `projects:<flow>`, `keys:<flow>:<project>`, each scored by counter, and
-- at the bottom `requests:<path>`, scored by deadline. A *path* is
-- `<class>:<tenant>:<project>:<key>`. What needs no adapter stands in `tenants:<class>:plain` and
-- `requests:<flow>` too, so that it need not wait behind what waits for one.

local FLOW_TTL_MS = 86400000       -- how long an absent tenant's debt and history are remembered
local FIRST_OUTPUT_ESTIMATE = 256  -- tokens, in a pool that has finished nothing yet
local OWN_HISTORY = 0.2            -- weight of the newest request in a flow's averages
local POOL_HISTORY = 0.05          -- and in those of the pool
local LONGEST_PAUSE_MS = 60000     -- between calls that are made each second, of a Redis that waited

-- Return a time in ms: the override, which only tests give, or else Redis TIME.
local function now_ms(override)
  if override then
    return tonumber(override)
  end
  local seconds, microseconds = unpack(redis.call('TIME'))
  return tonumber(seconds) * 1000 + math.floor(tonumber(microseconds) / 1000)
end

-- Wrap the numbers of a hash, which is read once, changed in memory and written once by `save`.
local function numbers_of(key, values)
  return { key = key, values = values, changed = {} }
end

-- Return a number of a hash, 0 where it has none.
local function get(numbers, field)
  return numbers.values[field] or 0
end

-- Change a number of a hash, in memory.
local function set(numbers, field, value)
  if numbers.values[field] ~= value then
    numbers.values[field] = value
    numbers.changed[field] = value
  end
end

-- Add to a number. Nothing counted here is ever below zero, also after a flow's history expired;
-- what is not there and stays zero is not written.
local function add(numbers, field, amount)
  local value = math.max(0, get(numbers, field) + amount)
  if value ~= 0 or numbers.values[field] then
    set(numbers, field, value)
  end
end

-- Raise a number to at least `to`.
local function raise(numbers, field, to)
  set(numbers, field, math.max(get(numbers, field), to))
end

-- Write the numbers that have changed since they were read or last written; those of a pool with
-- those of the workers that were looked at.
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
  for _, worker in pairs(numbers.workers or {}) do
    save(worker)
  end
end

-- Return the key of a request's hash.
local function request_key(prefix, request_id)
  return prefix .. SUFFIX.request .. request_id
end

-- Read all numbers of a hash that has a few.
local function read_numbers(key)
  local values, found = {}, redis.call('HGETALL', key)
  for index = 1, #found, 2 do
    values[found[index]] = tonumber(found[index + 1])
  end
  return numbers_of(key, values)
end

-- Return whether the clock was set since the last call that `note_call` has noted, and by how much
-- it and the pause were.
local function clock_step(pool)
  local last = get(pool, 'tick')
  local since = pool.now - last
  return last > 0 and math.abs(since) > LONGEST_PAUSE_MS, since
end

-- Read the scheduler's numbers of one pool, for one call. They are as many in a large pool as in a
-- small one: what is kept of a worker is read where a call looks at that worker. `waiting_now` is
-- the time by which requests wait, that of before where the clock was set: nobody has waited longer
-- for that, or is to wait longer.
local function open_pool(prefix, now)
  local pool = read_numbers(prefix .. SUFFIX.scheduler)
  pool.prefix, pool.now, pool.workers = prefix, now, {}
  local is_set, step = clock_step(pool)
  pool.skipped = get(pool, 'skipped') + (is_set and step or 0)
  pool.waiting_now = now - pool.skipped
  return pool
end

-- Return the numbers of one worker, read once in a call; `save` writes them with the pool's.
local function worker_of(pool, worker_id)
  local worker = pool.workers[worker_id]
  if not worker then
    worker = read_numbers(pool.prefix .. SUFFIX.worker_numbers .. worker_id)
    pool.workers[worker_id] = worker
  end
  return worker
end

-- Return a path with the names of the sorted sets on its way.
local function make_path(class, tenant, project, key)
  local flow = class .. ':' .. tenant
  return { class = class, tenant = tenant, project = project, key = key, flow = flow,
    projects = 'projects:' .. flow, keys = 'keys:' .. flow .. ':' .. project,
    text = flow .. ':' .. project .. ':' .. key }
end

-- Return the path that `path.text` was made of.
local function parse_path(text)
  return make_path(string.match(text, '^([^:]*):([^:]*):([^:]*):([^:]*)$'))
end

-- Return a flow's weight; one whose hash has expired has weight 1.
local function weight_of(flow)
  return flow.values.weight or 1
end

-- Return the key of a flow's hash.
local function flow_key(pool, flow)
  return pool.prefix .. SUFFIX.flow .. flow
end

-- Read a flow's numbers, with those of one project and one key of it.
local function open_flow(pool, path)
  local project_field, keys_floor_field = 'project:' .. path.project, 'floor:' .. path.project
  local key_field = 'key:' .. path.project .. ':' .. path.key
  local id = flow_key(pool, path.flow)
  local counter, weight, share, running, waiting, output, ratio, floor, expires, tokens, payload,
    project_counter, keys_floor, key_counter = unpack(redis.call('HMGET', id, 'counter', 'weight',
      'share', 'running', 'waiting', 'output', 'ratio', 'floor', 'expires', 'tokens', 'payload',
      project_field, keys_floor_field, key_field))
  local flow = numbers_of(id, { counter = tonumber(counter), weight = tonumber(weight),
    share = tonumber(share), running = tonumber(running), waiting = tonumber(waiting),
    output = tonumber(output), ratio = tonumber(ratio), floor = tonumber(floor),
    expires = tonumber(expires), tokens = tonumber(tokens), payload = tonumber(payload),
    [project_field] = tonumber(project_counter), [keys_floor_field] = tonumber(keys_floor),
    [key_field] = tonumber(key_counter) })
  flow.project, flow.key_counter, flow.keys_floor = project_field, key_field, keys_floor_field
  return flow
end

-- Return the keys of what waits and needs no adapter: the tenants of a class, a flow's requests.
local function plain_tenants_key(pool, class)
  return pool.prefix .. SUFFIX.waiting_tenants .. class .. ':plain'
end

local function plain_requests_key(pool, flow)
  return pool.prefix .. SUFFIX.waiting_requests .. flow
end

-- Charges and refunds ---------------------------------------------------------------------------

-- Return the units that so many tokens cost.
local function cost(input_tokens, output_tokens)
  return INPUT_WEIGHT * input_tokens + OUTPUT_WEIGHT * output_tokens
end

-- Add units, or take them back, at each level of a path.
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
  redis.call('ZADD', plain_tenants_key(pool, path.class), 'XX', get(flow, 'counter'), path.tenant)
end

-- Replace what a running request was charged by what it has really taken.
local function correct_charge(pool, path, flow, charged_input, charged_output, input, output)
  charge(pool, path, flow, cost(input - charged_input, output - charged_output))
end

-- Return the input and output tokens to charge a request before they are known: the prompt, by how
-- far this tenant's bounds were from its prompts; as output of each of its sequences, what that of
-- its sequences was. Never more than the bounds, which are of the whole request.
local function estimate(pool, flow, request)
  local ratio = flow.values.ratio or pool.values.ratio or 1
  local output = flow.values.output or pool.values.output or FIRST_OUTPUT_ESTIMATE
  return math.min(request.prompt, math.ceil(request.prompt * ratio)),
    math.min(request.output, math.ceil(output * request.sequences))
end

-- Move an average towards a new value, by its weight.
local function remember(numbers, field, value, weight)
  local before = numbers.values[field]
  set(numbers, field, before and before + weight * (value - before) or value)
end

-- Take a finished request of so many sequences into the averages that estimates are made of.
local function learn(pool, flow, prompt_bound, prompt_tokens, output_tokens, sequences)
  if output_tokens > 0 then
    remember(flow, 'output', output_tokens / sequences, OWN_HISTORY)
    remember(pool, 'output', output_tokens / sequences, POOL_HISTORY)
  end
  if prompt_tokens > 0 and prompt_bound > 0 then
    remember(flow, 'ratio', math.min(1, prompt_tokens / prompt_bound), OWN_HISTORY)
    remember(pool, 'ratio', math.min(1, prompt_tokens / prompt_bound), POOL_HISTORY)
  end
end

-- Waiting ---------------------------------------------------------------------------------------

-- Return how many requests wait in all classes.
local function waiting_in(pool)
  local length = 0
  for _, class in ipairs(CLASSES) do
    length = length + get(pool, class .. ':waiting')
  end
  return length
end

-- Lift who was idle to the level of the least served of those that wait, or where nobody waits, to
-- that of the last that was served: idleness earns nothing. Return whether nobody waits.
local function lift(set_key, numbers, field, floor)
  local first, least = unpack(redis.call('ZRANGE', set_key, 0, 0, 'WITHSCORES'))
  raise(numbers, field, tonumber(least) or floor)
  return first == nil
end

-- Do the same for a class among the classes.
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

-- Note of a request that needs no adapter that it waits, by its deadline, its flow at a `counter`,
-- or waits no more (nil).
local function note_plain_waits(pool, path, request_id, deadline_ms, counter)
  local requests = plain_requests_key(pool, path.flow)
  if deadline_ms then
    redis.call('ZADD', requests, deadline_ms, request_id)
    redis.call('ZADD', plain_tenants_key(pool, path.class), counter, path.tenant)
  elseif redis.call('ZREM', requests, request_id) == 1 and redis.call('EXISTS', requests) == 0 then
    redis.call('ZREM', plain_tenants_key(pool, path.class), path.tenant)
  end
end

-- Note of a request that it waits, by its deadline, its flow at a `counter`, or waits no more (nil),
-- beside its place in the order: of one that needs an adapter `requests:<path>:<adapter>` has those
-- of a key, `adapters-waiting` counts those of each adapter.
local function note_waits(pool, path, adapter, request_id, deadline_ms, counter)
  if not adapter or adapter == '' then
    return note_plain_waits(pool, path, request_id, deadline_ms, counter)
  end
  local key = pool.prefix .. SUFFIX.waiting_requests .. path.text .. ':' .. adapter
  local counts, change = pool.prefix .. SUFFIX.adapters_waiting, nil
  if deadline_ms then
    change = redis.call('ZADD', key, deadline_ms, request_id)
  else
    change = -redis.call('ZREM', key, request_id)
  end
  if change ~= 0 and redis.call('HINCRBY', counts, adapter, change) <= 0 then
    redis.call('HDEL', counts, adapter)
  end
end

-- Lift a key that did not wait, and its project and tenant where nothing of them waits; return
-- whether nothing of the project does, and of the tenant.
local function lift_levels(pool, path, flow)
  local prefix, of_project, of_tenant = pool.prefix .. ':', false, false
  of_project = lift(prefix .. path.keys, flow, flow.key_counter, get(flow, flow.keys_floor))
  if of_project then
    of_tenant = lift(prefix .. path.projects, flow, flow.project, get(flow, 'floor'))
  end
  if of_tenant then
    lift(prefix .. 'tenants:' .. path.class, flow, 'counter', get(pool, path.class .. ':floor'))
  end
  return of_project, of_tenant
end

-- Have a key wait that did not yet, and its project and tenant.
local function begin_waiting_at_levels(pool, path, flow)
  local prefix = pool.prefix .. ':'
  local is_project_new, is_tenant_new = lift_levels(pool, path, flow)
  redis.call('ZADD', prefix .. path.keys, get(flow, flow.key_counter), path.key)
  if is_project_new then
    redis.call('ZADD', prefix .. path.projects, get(flow, flow.project), path.project)
  end
  if is_tenant_new then
    redis.call('ZADD', prefix .. 'tenants:' .. path.class, get(flow, 'counter'), path.tenant)
  end
end

-- Add a request to those that wait, and its key, project and tenant where they did not wait yet.
local function add_waiting(pool, path, flow, request_id, deadline_ms, adapter)
  local class, requests = path.class, pool.prefix .. SUFFIX.waiting_requests .. path.text
  if get(pool, class .. ':waiting') == 0 then
    lift_class(pool, class)
  end
  add(pool, class .. ':waiting', 1)
  add(flow, 'waiting', 1)
  redis.call('ZADD', requests, deadline_ms, request_id)
  if redis.call('ZCARD', requests) == 1 then
    begin_waiting_at_levels(pool, path, flow)
  end
  note_waits(pool, path, adapter, request_id, deadline_ms, get(flow, 'counter'))
end

-- Take key, project and tenant out of those that wait where a request that has left
-- `requests:<path>` was their last.
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

-- Give a request that the asking worker may not have the place back that it had in the order.
local function put_back(pool, path, flow, request_id, deadline_ms, adapter)
  local prefix = pool.prefix .. ':'
  if adapter == '' then
    note_plain_waits(pool, path, request_id, deadline_ms, get(flow, 'counter'))
  end
  add(pool, path.class .. ':waiting', 1)
  add(flow, 'waiting', 1)
  redis.call('ZADD', prefix .. 'requests:' .. path.text, deadline_ms, request_id)
  redis.call('ZADD', prefix .. path.keys, get(flow, flow.key_counter), path.key)
  redis.call('ZADD', prefix .. path.projects, get(flow, flow.project), path.project)
  redis.call('ZADD', prefix .. 'tenants:' .. path.class, get(flow, 'counter'), path.tenant)
end

-- Take a request out of those that wait, if it is there.
local function remove_waiting(pool, path, request_id, adapter)
  note_waits(pool, path, adapter, request_id, nil)
  if redis.call('ZREM', pool.prefix .. SUFFIX.waiting_requests .. path.text, request_id) == 1 then
    redis.call('HINCRBY', flow_key(pool, path.flow), 'waiting', -1)
    note_left(pool, path)
  end
end

-- Let a request that need not wait pass the empty queue, level with the last one served.
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
