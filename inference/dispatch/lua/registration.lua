-- The door of a pool: which worker may join it. Part of the dispatch library.
--
-- A pool serves one model by one kind of engine: those of its first worker, or what an operator has
-- said since. The control plane keeps a copy in PostgreSQL and gives it back to a Redis that has
-- lost it.

local STARTING = 'starting'

-- Return engine, digest of the model and state as a worker's description has them; nil where this is
-- none. A worker of an earlier version tells no digest.
local function identity_in(info)
  local is_read, fields = pcall(cmsgpack.unpack, info)
  if not is_read or type(fields) ~= 'table' then
    return nil
  end
  return fields[WORKER_ENGINE], fields[WORKER_DIGEST] or '', fields[WORKER_STATE]
end

-- Return the error reply to a worker that would serve something else than its pool, and count it; or
-- nil, and have the first worker say what the pool serves. Who does not tell its digest is judged by
-- its engine alone. Only who starts is refused: what runs was let in once, and has requests.
local function identity_refusal(pool, name, info)
  local key = pool.prefix .. SUFFIX.identity
  local engine, digest, state = identity_in(info)
  if not engine then
    return nil
  end
  local pinned_engine, pinned_digest = unpack(redis.call('HMGET', key, 'engine', 'digest'))
  pinned_digest = pinned_digest or ''
  if not pinned_engine then
    redis.call('HSET', key, 'engine', engine, 'digest', digest)
    return nil
  end
  local is_alike = digest == '' or pinned_digest == '' or digest == pinned_digest
  if engine == pinned_engine and is_alike then
    if pinned_digest == '' and digest ~= '' then
      redis.call('HSET', key, 'digest', digest)
    end
    return nil
  end
  if state ~= STARTING then
    return nil
  end
  redis.call('HINCRBY', key, 'refused', 1)
  redis.call('HSET', key, 'refused_name', name, 'refused_engine', engine, 'refused_digest', digest,
    'refused_at', string.format('%.0f', pool.now))
  return redis.error_reply('MISMATCH it serves ' .. pinned_engine .. ' ' .. pinned_digest
    .. ', and worker ' .. name .. ' brings ' .. engine .. ' ' .. digest)
end

-- Register a worker's process under its name, with no adapters, and fence any earlier one; unless it
-- would serve something else than the pool. Reply: the ids of the processes that this call fenced.
local function register(keys, args)
  local prefix, worker_id, name, info, now = keys[1], unpack(args)
  local pool = open_pool(prefix, now_ms(now))
  if (heartbeat_of(prefix, worker_id) or 0) < 0 then
    return fenced_error(worker_id)
  end
  local refused = identity_refusal(pool, name, info)
  if refused then
    return refused
  end
  local fenced = {}
  local earlier = redis.call('HGET', prefix .. SUFFIX.worker_names, name)
  if earlier and earlier ~= worker_id then
    fence(pool, earlier)
    fenced[1] = earlier
  end
  redis.call('HSET', prefix .. SUFFIX.worker_names, name, worker_id)
  redis.call('HSET', prefix .. SUFFIX.workers, worker_id, info)
  redis.call('ZADD', prefix .. SUFFIX.heartbeats, pool.now, worker_id)
  drop_levels(pool, worker_id)
  save(pool)
  return fenced
end
