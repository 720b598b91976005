-- The dead: what lost workers hold, and what waits of a gateway for too long, until that gateway, or
-- the sweeper in its place, ends it: reap, reap_gone. Part of the dispatch library.
--
-- Whoever calls first after a worker is lost hands its requests out to their gateways, once:
-- `lost:<gateway>` has those of each, `handed-out` the worker by the heartbeat that was its last. So
-- a hundred dead workers cost a hundred gateways what each has to end, however often they call.

local LONG_DEAD_MS = 600000        -- a worker that was silent for so long is forgotten
local MOST_HANDED_OUT = 1000       -- requests, in one call, but for the last worker's

local drop_more_levels             -- in adapters.lua, which builds on this file

-- Hand a lost worker's requests out to their gateways; return how many. What it does not run any
-- more it holds no more.
local function hand_out(pool, worker_id)
  local prefix = pool.prefix
  local held = redis.call('SMEMBERS', prefix .. SUFFIX.worker_requests .. worker_id)
  for _, request_id in ipairs(held) do
    local state, gateway, sequences = unpack(redis.call('HMGET', request_key(prefix, request_id),
      'state', 'gateway', 'sequences'))
    if state == 'running' then
      local key = prefix .. SUFFIX.gateway_lost .. gateway
      redis.call('ZADD', key, pool.now, request_id)
      redis.call('PEXPIRE', key, LONG_GONE_MS)
    else
      release_request(pool, worker_id, request_id, tonumber(sequences) or 1)
    end
  end
  return #held
end

-- Look at workers that have been silent for a lease: bench them, hand out what is lost with them,
-- and forget those that are long dead.
local function look_at_dead(pool, lease_ms)
  local prefix, handed_out, count = pool.prefix, {}, 0
  local dead = redis.call('ZRANGEBYSCORE', prefix .. SUFFIX.heartbeats, '-inf',
    '(' .. string.format('%.0f', pool.now - lease_ms), 'WITHSCORES')
  if #dead > 0 then
    local found = redis.call('ZRANGE', prefix .. ':handed-out', 0, -1, 'WITHSCORES')
    for index = 1, #found, 2 do
      handed_out[found[index]] = found[index + 1]
    end
  end
  for index = 1, #dead, 2 do
    local worker_id, heartbeat = dead[index], tonumber(dead[index + 1])
    local is_lost = heartbeat < 0 or not is_resuming(pool, lease_ms)
    if handed_out[worker_id] ~= dead[index + 1] and count < MOST_HANDED_OUT then
      bench_worker(pool, worker_id)
      if is_lost then
        count = count + hand_out(pool, worker_id)
        redis.call('ZADD', prefix .. ':handed-out', dead[index + 1], worker_id)
      end
    end
    if is_lost and pool.now - math.abs(heartbeat) > LONG_DEAD_MS
      and redis.call('EXISTS', prefix .. SUFFIX.worker_requests .. worker_id) == 0 then
      forget_worker(pool, worker_id)
    end
  end
end

-- Add a request to those that were found. Its envelope is read for who is to have it only.
local function add_found(found, prefix, request_id, attempt, state, gateway, worker_id)
  local envelope = redis.call('HGET', request_key(prefix, request_id), 'envelope')
  found[#found + 1] = { request_id, tonumber(attempt), state, gateway, worker_id, envelope or '' }
end

-- Add what is lost of a gateway's requests with the workers that held them. What has gone on since
-- is listed no more; nothing is lost with a worker that may still be back after a pause.
local function find_lost(pool, found, lease_ms, limit, gateway)
  look_at_dead(pool, lease_ms)
  local key = pool.prefix .. SUFFIX.gateway_lost .. gateway
  for _, request_id in ipairs(redis.call('ZRANGE', key, 0, limit - 1)) do
    local attempt, state, worker_id = unpack(redis.call('HMGET',
      request_key(pool.prefix, request_id), 'attempt', 'state', 'worker'))
    local heartbeat = state == 'running' and (heartbeat_of(pool.prefix, worker_id) or -1)
    if not heartbeat or heartbeat >= pool.now - lease_ms then
      redis.call('ZREM', key, request_id)
    elseif heartbeat < 0 or not is_resuming(pool, lease_ms) then
      add_found(found, pool.prefix, request_id, attempt, state, gateway, worker_id)
    end
  end
end

-- Add what waits of a gateway, in the queue or withdrawn from it, and might wait until `until_ms`.
local function find_waiting(pool, found, gateway, until_ms, limit)
  local waiting = redis.call('ZRANGEBYSCORE', pool.prefix .. SUFFIX.gateway_waiting .. gateway,
    '-inf', until_ms, 'LIMIT', 0, limit)
  for _, request_id in ipairs(waiting) do
    local attempt, state, of_gateway, worker_id = unpack(redis.call('HMGET',
      request_key(pool.prefix, request_id), 'attempt', 'state', 'gateway', 'worker'))
    if state ~= 'queued' then
      end_waiting(pool, gateway, request_id)
    elseif #found < limit and of_gateway == gateway then
      add_found(found, pool.prefix, request_id, attempt, state, gateway, worker_id)
    end
  end
end

-- Find the requests of a gateway that it has to end: held by a dead or fenced worker, or queued
-- beyond their deadline and the grace. A sign of life of the gateway: what was set aside while it
-- was silent waits again. Changes no request otherwise, but takes dead workers' slots out of the
-- sums. After a pause no worker is dead yet that may have been kept from calling.
-- Reply: {request_id, attempt, state, gateway, worker_id, envelope} of each, at most `limit`.
local function reap(keys, args)
  local prefix, lease_ms, grace_ms, limit, gateway, now = keys[1], unpack(args)
  local pool, found, most = open_pool(prefix, now_ms(now)), {}, tonumber(limit)
  note_gateway(pool, gateway)
  bring_back(pool, gateway)
  note_call(pool, false)
  drop_more_levels(pool)
  find_lost(pool, found, tonumber(lease_ms), most, gateway)
  find_waiting(pool, found, gateway, string.format('(%.0f', pool.waiting_now - grace_ms), most)
  save(pool)
  return found
end

-- Find the requests that a gateway without a heartbeat has left behind, once it is gone: held by a
-- dead or fenced worker, or queued, however long they might wait. What a living worker runs of it,
-- that worker ends. Otherwise as `reap`; nothing of a gateway that is not gone.
local function reap_gone(keys, args)
  local prefix, lease_ms, limit, gateway, now = keys[1], unpack(args)
  local pool, found = open_pool(prefix, now_ms(now)), {}
  note_call(pool, false)
  if is_gone(pool, gateway) then
    limit = tonumber(limit)
    find_lost(pool, found, tonumber(lease_ms), limit, gateway)
    find_waiting(pool, found, gateway, '+inf', limit)
    forget_gone(pool, gateway)
  end
  save(pool)
  return found
end
