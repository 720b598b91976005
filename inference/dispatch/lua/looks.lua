-- Looks through the queue that a worker is spared. Part of the dispatch library, before turns.lua.
--
-- While requests wait for adapters, workers have slots free, and with whoever comes or ends the queue
-- would be looked through again, to find what was found before. After a look that met only requests
-- that wait for their adapters, and left slots beyond the headroom, a worker is spared the next: what
-- comes waits as well, or starts there at once and goes by those; a slot that becomes free is one
-- more that they cannot use. `looked` of the worker's hash: 1, and one for each request that went by
-- since; 0 where a look may find more, since an adapter has come or left a slot.

local MOST_GO_BY = 8               -- requests, until the queue is looked through

-- Have the queue be looked through at the next chance to start something on a worker.
local function forget_look(pool, worker_id)
  local worker = worker_of(pool, worker_id)
  if get(worker, 'looked') > 0 then
    set(worker, 'looked', 0)
  end
end

-- Note a look that has ended and left a worker so much credit; `all_wait`: all that it met waits for
-- adapters.
local function note_look(pool, worker_id, credit, all_wait)
  if all_wait and credit > 0 and not is_for_newcomers(pool, worker_id, 1) then
    set(worker_of(pool, worker_id), 'looked', 1)
  else
    forget_look(pool, worker_id)
  end
end

-- Return whether a worker is spared a look.
local function is_look_spared(pool, worker_id)
  local looked = get(worker_of(pool, worker_id), 'looked')
  return looked > 0 and looked <= MOST_GO_BY
end

-- Return how many requests went by since a worker's last look.
local function gone_by(pool, worker_id)
  return math.max(0, get(worker_of(pool, worker_id), 'looked') - 1)
end

-- Return whether a new request may start on a worker that has a slot for it though others wait: they
-- may not, and none of them needs the same adapter, or none.
local function may_go_by(pool, path, adapter, worker_id)
  if not is_look_spared(pool, worker_id) then
    return false
  elseif adapter == '' then
    return redis.call('EXISTS', plain_tenants_key(pool, path.class)) == 0
  end
  return redis.call('HEXISTS', pool.prefix .. SUFFIX.adapters_waiting, adapter) == 0
end

-- Let a new request go by those that wait for their adapters: level with the least served of them, as
-- if it had waited and was next.
local function go_by(pool, path, flow, worker_id)
  if get(pool, path.class .. ':waiting') == 0 then
    lift_class(pool, path.class)
  end
  if redis.call('EXISTS', pool.prefix .. SUFFIX.waiting_requests .. path.text) == 0 then
    lift_levels(pool, path, flow)
  end
  local _, least_class = waiting_classes(pool)
  local least_tenant = redis.call('ZRANGE', pool.prefix .. SUFFIX.waiting_tenants .. path.class, 0,
    0, 'WITHSCORES')[2]
  note_served(pool, path, flow, least_class, tonumber(least_tenant) or get(flow, 'counter'))
  add(worker_of(pool, worker_id), 'looked', 1)
end
