-- Payloads: the bytes of the requests that a pool holds, waiting or running, bounded so that it is
-- newcomers who are refused, by us, before Redis has no memory for anybody. Part of the dispatch
-- library, after waits.lua.
--
-- The scheduler's hash counts them as `payload`, and so does each flow's. A payload is counted from
-- `enqueue` or `adopt` until `finish` deletes it.

local CROWDED = 1 / 2              -- of the cap: from here on a flow has no more than its share
local OF_ONE_FLOW = 1 / 4          -- of the cap, however little the others need

-- Count so many bytes more, or fewer, as held for a flow.
local function add_payload(pool, flow, bytes)
  add(pool, 'payload', bytes)
  add(flow, 'payload', bytes)
end

-- Put a payload into a request's hash in place of the one that is there, and count it.
local function replace_payload(pool, flow, key, envelope)
  add_payload(pool, flow, #envelope - redis.call('HSTRLEN', key, 'envelope'))
  redis.call('HSET', key, 'envelope', envelope)
end

-- Count the payload of a request as gone; the caller deletes it.
local function release_payload(pool, flow, key)
  add_payload(pool, flow, -redis.call('HSTRLEN', key, 'envelope'))
end

-- Return the reply that keeps a payload of so many bytes out of a pool that holds `most` at most,
-- or nil. The first payload of a flow is taken wherever the pool has room, whatever its size, and
-- the first of a pool always.
local function payload_refusal(pool, flow, bytes, most, wait_ms)
  local mine, held = get(flow, 'payload'), get(pool, 'payload')
  local all = held + bytes
  if mine > 0 and mine + bytes > most * OF_ONE_FLOW then
    return { 'share_full', mine, math.floor(most * OF_ONE_FLOW) }
  end
  local share = most * get(flow, 'share') / math.max(get(pool, 'weights'), get(flow, 'share'), 1)
  local is_beyond_share = mine > 0 and mine + bytes > share
  if held > 0 and all > most or (all > most * CROWDED and is_beyond_share) then
    return { 'memory_full', held, wait_ms }
  end
  return nil
end
