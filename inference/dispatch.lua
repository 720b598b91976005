#!lua name=penstock_dispatch_1
-- The queue of one pool: enqueue, register, claim, finish, cancel, reap, held.
--
-- Every function takes one key, the pool's prefix `{m:<pool>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py: one hash slot, so Redis Cluster works. Time is Redis
-- TIME in milliseconds. Invariant: never both a waiting request and a live worker with credit.
--
-- A request's hash goes queued -> running -> finished, or queued -> finished. Only the current
-- attempt may finish it, once. Commands of Redis 7.0 only.

local LEASE_MS = 6000              -- a worker that did not claim for so long is given nothing
local LONG_DEAD_MS = 600000        -- and after this one is forgotten
local FINISHED_TTL_SECONDS = 600   -- how long a late question about a request can be answered

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function request_key(pool, request_id)
  return pool .. ':request:' .. request_id
end

-- Heartbeats: the last claim's time; below zero, minus the time of fencing.
local function is_live(pool, worker_id, now)
  local heartbeat = redis.call('ZSCORE', pool .. ':heartbeats', worker_id)
  return heartbeat ~= false and tonumber(heartbeat) > now - LEASE_MS
end

local function start_attempt(pool, request_id, worker_id)
  local key = request_key(pool, request_id)
  local attempt = redis.call('HINCRBY', key, 'attempt', 1)
  redis.call('HSET', key, 'state', 'running', 'worker', worker_id)
  redis.call('SADD', pool .. ':running:' .. worker_id, request_id)
  redis.call('ZREM', pool .. ':deadlines', request_id)
  return 'assign ' .. request_id .. ' ' .. attempt .. '\n' .. redis.call('HGET', key, 'envelope')
end

-- Takes up to `credit` requests from the head of the queue. One whose deadline has passed is left
-- to whoever ends it: it stays in `deadlines`, no worker is given it any more.
local function take_from_queue(pool, worker_id, credit, now)
  local taken = {}
  while #taken < credit do
    local popped = redis.call('ZPOPMIN', pool .. ':queue', credit - #taken)
    if #popped == 0 then
      break
    end
    for index = 1, #popped, 2 do
      local fields = redis.call('HMGET', request_key(pool, popped[index]), 'state', 'deadline_ms')
      if fields[1] == 'queued' and tonumber(fields[2]) > now then
        taken[#taken + 1] = start_attempt(pool, popped[index], worker_id)
      end
    end
  end
  return taken
end

-- The live worker with most credit, or nil. Dead ones lose theirs on the way.
local function worker_with_credit(pool, now)
  while true do
    local best = redis.call('ZREVRANGEBYSCORE', pool .. ':free-slots', '+inf', '1', 'LIMIT', 0, 1)
    if #best == 0 then
      return nil
    end
    if is_live(pool, best[1], now) then
      return best[1]
    end
    redis.call('ZREM', pool .. ':free-slots', best[1])
  end
end

-- ARGV: request_id tenant_id gateway_id arrived_at_ms deadline_ms envelope max_queue_length
-- -> {assigned, worker_id} | {queued, position} | {full, length} | {known, state}
local function enqueue(keys, args)
  local pool, request_id, now = keys[1], args[1], now_ms()
  local key = request_key(pool, request_id)
  local state = redis.call('HGET', key, 'state')
  if state then
    return { 'known', state }
  end
  local queue = pool .. ':queue'
  local length = redis.call('ZCARD', queue)
  local worker_id = nil
  if length == 0 then
    worker_id = worker_with_credit(pool, now)
  end
  if not worker_id and length >= tonumber(args[7]) then
    return { 'full', length }
  end
  redis.call('HSET', key, 'state', 'queued', 'attempt', 0, 'worker', '', 'tenant', args[2],
    'gateway', args[3], 'deadline_ms', args[5], 'envelope', args[6])
  redis.call('ZADD', pool .. ':open', args[4], request_id)
  if worker_id then
    redis.call('ZINCRBY', pool .. ':free-slots', -1, worker_id)
    redis.call('RPUSH', pool .. ':inbox:' .. worker_id, start_attempt(pool, request_id, worker_id))
    return { 'assigned', worker_id }
  end
  redis.call('ZADD', queue, redis.call('INCR', pool .. ':sequence'), request_id)
  redis.call('ZADD', pool .. ':deadlines', args[5], request_id)
  return { 'queued', length + 1 }
end

local function fence(pool, worker_id, now)
  redis.call('ZADD', pool .. ':heartbeats', -now, worker_id)
  redis.call('ZREM', pool .. ':free-slots', worker_id)
  redis.call('DEL', pool .. ':inbox:' .. worker_id)
end

local function forget_worker(pool, worker_id)
  redis.call('ZREM', pool .. ':heartbeats', worker_id)
  redis.call('ZREM', pool .. ':free-slots', worker_id)
  redis.call('HDEL', pool .. ':workers', worker_id)
  redis.call('DEL', pool .. ':inbox:' .. worker_id)
  local name = string.match(worker_id, '^(.*)#') or worker_id
  if redis.call('HGET', pool .. ':names', name) == worker_id then
    redis.call('HDEL', pool .. ':names', name)
  end
end

local function fenced_error(worker_id)
  return redis.error_reply('FENCED another process has taken the name of worker ' .. worker_id)
end

-- ARGV: worker_id worker_name info -> ids of the earlier incarnations that this call fenced
local function register(keys, args)
  local pool, worker_id, name, now = keys[1], args[1], args[2], now_ms()
  local heartbeat = redis.call('ZSCORE', pool .. ':heartbeats', worker_id)
  if heartbeat and tonumber(heartbeat) < 0 then
    return fenced_error(worker_id)
  end
  local fenced = {}
  local earlier = redis.call('HGET', pool .. ':names', name)
  if earlier and earlier ~= worker_id then
    fence(pool, earlier, now)
    fenced[1] = earlier
  end
  redis.call('HSET', pool .. ':names', name, worker_id)
  redis.call('HSET', pool .. ':workers', worker_id, args[3])
  redis.call('ZADD', pool .. ':heartbeats', now, worker_id)
  return fenced
end

-- ARGV: worker_id info slots ready(1|0) -> inbox messages to run now. Renews the lease; what the
-- queue cannot use of the free slots stays as credit.
local function claim(keys, args)
  local pool, worker_id, now = keys[1], args[1], now_ms()
  local heartbeat = redis.call('ZSCORE', pool .. ':heartbeats', worker_id)
  if not heartbeat then
    return redis.error_reply('UNKNOWN worker ' .. worker_id .. ' has to register first')
  end
  if tonumber(heartbeat) < 0 then
    return fenced_error(worker_id)
  end
  redis.call('ZADD', pool .. ':heartbeats', now, worker_id)
  redis.call('HSET', pool .. ':workers', worker_id, args[2])
  if args[4] ~= '1' then
    redis.call('ZREM', pool .. ':free-slots', worker_id)
    return {}
  end
  local held = redis.call('SCARD', pool .. ':running:' .. worker_id)
  local credit = math.max(0, tonumber(args[3]) - held)
  local taken = take_from_queue(pool, worker_id, credit, now)
  redis.call('ZADD', pool .. ':free-slots', credit - #taken, worker_id)
  return taken
end

-- ARGV: worker_id -> inbox messages of every attempt the worker holds. For a worker that may have
-- lost an answer of claim or a message of its inbox when its connection broke.
local function held(keys, args)
  local pool, worker_id = keys[1], args[1]
  local messages = {}
  for _, request_id in ipairs(redis.call('SMEMBERS', pool .. ':running:' .. worker_id)) do
    local fields = redis.call('HMGET', request_key(pool, request_id), 'attempt', 'envelope')
    if fields[1] and fields[2] then
      messages[#messages + 1] = 'assign ' .. request_id .. ' ' .. fields[1] .. '\n' .. fields[2]
    end
  end
  return messages
end

-- The slot of a finished attempt goes to the next in the queue, else back to the worker's credit.
local function free_slot(pool, worker_id, now)
  local credit = redis.call('ZSCORE', pool .. ':free-slots', worker_id)
  if not credit or not is_live(pool, worker_id, now) then
    return
  end
  local next_up = take_from_queue(pool, worker_id, 1, now)
  if next_up[1] then
    redis.call('RPUSH', pool .. ':inbox:' .. worker_id, next_up[1])
  else
    redis.call('ZINCRBY', pool .. ':free-slots', 1, worker_id)
  end
end

-- ARGV: request_id attempt usage_entry -> 1 accepted | 0. Attempt 0 means "no worker took it".
-- A repetition of the accepted call (an answer lost with its connection) is accepted again and
-- recorded once. The record stays with the request for late questions, such as the sweeper's.
local function finish(keys, args)
  local pool, request_id, attempt, entry = keys[1], args[1], args[2], args[3]
  local key = request_key(pool, request_id)
  local fields = redis.call('HMGET', key, 'state', 'attempt', 'worker', 'record')
  local state = fields[1]
  if state == 'finished' then
    return (fields[4] == entry) and 1 or 0
  end
  local is_current = (state == 'queued' and attempt == '0')
    or (state == 'running' and attempt ~= '0' and attempt == fields[2])
  if not is_current then
    return 0
  end
  redis.call('HSET', key, 'state', 'finished', 'record', entry)
  redis.call('HDEL', key, 'envelope')
  redis.call('EXPIRE', key, FINISHED_TTL_SECONDS)
  redis.call('ZREM', pool .. ':open', request_id)
  redis.call('XADD', pool .. ':usage', '*', 'record', entry)
  if state == 'running' then
    redis.call('SREM', pool .. ':running:' .. fields[3], request_id)
    free_slot(pool, fields[3], now_ms())
  else
    redis.call('ZREM', pool .. ':queue', request_id)
    redis.call('ZREM', pool .. ':deadlines', request_id)
  end
  return 1
end

-- ARGV: request_id -> running | queued | terminal | unknown. A queued request is taken out of the
-- queue, so that no worker gets it between this call and the caller's `finish` of attempt 0.
local function cancel(keys, args)
  local pool, request_id = keys[1], args[1]
  local fields = redis.call('HMGET', request_key(pool, request_id), 'state', 'attempt', 'worker')
  if fields[1] == 'running' then
    redis.call('RPUSH', pool .. ':inbox:' .. fields[3],
      'cancel ' .. request_id .. ' ' .. fields[2] .. '\n')
    return 'running'
  elseif fields[1] == 'queued' then
    redis.call('ZREM', pool .. ':queue', request_id)
    return 'queued'
  elseif fields[1] == 'finished' then
    return 'terminal'
  end
  return 'unknown'
end

-- ARGV: lease_ms grace_ms limit [gateway_id] -> {request_id, attempt, state, gateway, worker,
-- envelope} of requests that somebody has to end: held by a dead or fenced worker, or queued
-- beyond deadline + grace. With a gateway id, only that gateway's. Changes no request, but
-- forgets workers that are long dead and hold nothing.
local function reap(keys, args)
  local pool, now, limit, gateway = keys[1], now_ms(), tonumber(args[3]), args[4]
  local found = {}

  local function add(request_id, expected_state)
    local fields = redis.call('HMGET', request_key(pool, request_id), 'attempt', 'state', 'gateway',
      'worker', 'envelope')
    if fields[2] == expected_state then
      if not gateway or gateway == fields[3] then
        found[#found + 1] = { request_id, tonumber(fields[1]), fields[2], fields[3], fields[4],
          fields[5] or '' }
      end
      return true
    end
    return false
  end

  local dead = redis.call('ZRANGEBYSCORE', pool .. ':heartbeats', '-inf',
    '(' .. string.format('%.0f', now - tonumber(args[1])), 'WITHSCORES')
  for index = 1, #dead, 2 do
    local worker_id, running = dead[index], pool .. ':running:' .. dead[index]
    for _, request_id in ipairs(redis.call('SMEMBERS', running)) do
      if #found >= limit then
        return found
      end
      if not add(request_id, 'running') then
        redis.call('SREM', running, request_id)
      end
    end
    if now - math.abs(tonumber(dead[index + 1])) > LONG_DEAD_MS
      and redis.call('EXISTS', running) == 0 then
      forget_worker(pool, worker_id)
    end
  end

  local overdue = redis.call('ZRANGEBYSCORE', pool .. ':deadlines', '-inf',
    '(' .. string.format('%.0f', now - tonumber(args[2])), 'LIMIT', 0, limit)
  for _, request_id in ipairs(overdue) do
    if #found >= limit then
      break
    end
    if not add(request_id, 'queued') then
      redis.call('ZREM', pool .. ':deadlines', request_id)
    end
  end
  return found
end

redis.register_function('penstock_enqueue_1', enqueue)
redis.register_function('penstock_register_1', register)
redis.register_function('penstock_claim_1', claim)
redis.register_function('penstock_held_1', held)
redis.register_function('penstock_finish_1', finish)
redis.register_function('penstock_cancel_1', cancel)
redis.register_function('penstock_reap_1', reap)
