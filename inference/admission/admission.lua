-- Reservations of a tenant's limits, for all gateways: made once for the worst case, trued down
-- when the prompt is counted, settled at the end. Fourth part of the admission library, after
-- limits.lua.
--
-- Every function takes one key, the tenant's prefix `{t:<tenant>}`, and derives the others by the
-- suffixes of gpu_workers/protocol/keys.py. Its first lines name its arguments in their order:
-- tokens, nano-dollars, times in ms. `now` comes last and only from tests: otherwise it is Redis
-- TIME. A reservation never expires by itself: a sweeper asks the pool first.

local MOST_OF_ONE = 2 ^ 53          -- beyond it doubles lose whole numbers

-- Return msgpack of {at, windows, request, sequences}; the request is packed already.
local function pack_reservation(at, windows, packed_request, sequences)
  return '\148' .. cmsgpack.pack(at, windows) .. packed_request .. cmsgpack.pack(sequences)
end

-- Read an open reservation; return it, the request in it, and its account, or nil where nothing is
-- reserved.
local function read_reservation(tenant, request_id)
  local packed = call('HGET', tenant .. SUFFIX.reservations, request_id)
  if not packed then
    return nil
  end
  local reservation = cmsgpack.unpack(packed)
  local at, _, request = unpack(reservation)
  local account = account_of(tenant, request[REQUEST_KEY_ID], request[REQUEST_PROJECT_ID], at)
  return reservation, request, account
end

-- Return an amount that a worker has told of, or what was reserved in its place where nothing can
-- have cost that, and no counter could hold it.
local function amount(text, reserved)
  local number = tonumber(text)
  return number and number >= 0 and number < MOST_OF_ONE and number or reserved
end

-- Move an open reservation to other amounts, in the periods that it was made in.
local function move(reservation, account, tokens, nanos)
  local at, windows, request = unpack(reservation)
  local more_tokens, more_nanos = tokens - request[REQUEST_TOKENS], nanos - request[REQUEST_NANOS]
  if more_tokens == 0 and more_nanos == 0 then
    return
  end
  for owner = 1, OWNERS do
    if string.sub(windows, owner, owner) == '1' then
      correct_tokens(token_window(account.tenant, account[owner]), at, more_tokens)
    end
  end
  add_to_periods(account, more_tokens, more_nanos)
  if more_nanos ~= 0 then
    call('HINCRBY', account.balance, 'reserved', more_nanos)
  end
  request[REQUEST_TOKENS], request[REQUEST_NANOS] = tokens, nanos
end

-- functions --------------------------------------------------------------------------------------

-- Reserve the most that a request may take, of all its limits or of none; asking again for the same
-- request is free. `packed_request` is msgpack of {key_id, project_id, tokens, nanos, ...},
-- `limits` what `plan_of` takes, `sequences` how many of them are open at once, 1 if not given.
-- Reply: {now, which limit refuses or 0, wait_ms or NEVER, what is used of each limit}.
local function reserve(keys, args)
  call = redis.call
  local tenant, request_id, key_id, project_id, tokens, nanos, packed_request, limits, sequences,
    now = keys[1], unpack(args)
  local plan = plan_of(limits)
  sequences = tonumber(sequences) or 1
  tokens, nanos, now = tonumber(tokens), tonumber(nanos), now_ms(now)
  local account, refusing, wait = account_of(tenant, key_id, project_id, now), 0, 0
  local use, of_second = read_use(account, plan, now)
  local reservations = tenant .. SUFFIX.reservations
  local packed = pack_reservation(now, plan.windows, packed_request, sequences)
  if call('HSETNX', reservations, request_id, packed) == 1 then
    refusing, wait = find_refusal(account, plan, use, tokens, nanos, sequences, now)
    if refusing == 0 then
      take(account, plan, request_id, use, of_second, tokens, nanos, sequences, now)
    else
      call('HDEL', reservations, request_id)
    end
  end
  local answer = { now, refusing, wait }
  for _, position in ipairs(plan.positions) do
    answer[#answer + 1] = use[position]
  end
  return answer
end

-- True a reservation down to tokens and nano-dollars; never raise it.
-- Reply: 1, or 0 if nothing is reserved.
local function true_down(keys, args)
  call = redis.call
  local tenant, request_id, tokens, nanos = keys[1], unpack(args)
  local reservation, request, account = read_reservation(tenant, request_id)
  if not reservation then
    return 0
  end
  tokens = math.min(amount(tokens, request[REQUEST_TOKENS]), request[REQUEST_TOKENS])
  nanos = math.min(amount(nanos, request[REQUEST_NANOS]), request[REQUEST_NANOS])
  move(reservation, account, tokens, nanos)
  call('HSET', tenant .. SUFFIX.reservations, request_id, cmsgpack.pack(reservation))
  return 1
end

-- Settle a reservation: what was really used, in tokens and nano-dollars, stays counted; the
-- request stays in its minute.
-- Reply: 1, or 0 if nothing is reserved.
local function settle(keys, args)
  call = redis.call
  local tenant, request_id, tokens, nanos = keys[1], unpack(args)
  local reservation, request, account = read_reservation(tenant, request_id)
  if not reservation then
    return 0
  end
  tokens, nanos = amount(tokens, request[REQUEST_TOKENS]), amount(nanos, request[REQUEST_NANOS])
  move(reservation, account, tokens, nanos)
  local _, _, _, sequences = unpack(reservation)
  close(account, nanos, sequences or 1)
  return call('HDEL', tenant .. SUFFIX.reservations, request_id)
end

-- Return the status of limits, which are what `plan_of` takes.
-- Reply: {now, then of each limit what is used, and the ms until it is all free again: 0 where
-- nothing is used or nobody knows}.
local function limit_status(keys, args)
  call = redis.call
  local tenant, key_id, project_id, limits, now = keys[1], unpack(args)
  now = now_ms(now)
  local account, plan = account_of(tenant, key_id, project_id, now), plan_of(limits)
  local use, answer = read_use(account, plan, now), { now }
  for index, position in ipairs(plan.positions) do
    local used, kind, wait = use[position], plan.kinds[index], 0
    if used > 0 and kind ~= OPEN and kind ~= BALANCE then
      wait = wait_for(account, kind, plan.owners[index], used, used, used, now)
    end
    answer[#answer + 1], answer[#answer + 2] = used, wait
  end
  return answer
end

-- A Redis that holds all it may refuses what is new, not what ends.
local WITHOUT_MEMORY = { 'allow-oom' }

redis.register_function('penstock_reserve_1', reserve)
redis.register_function{ function_name = 'penstock_true_down_1', callback = true_down,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_settle_1', callback = settle,
  flags = WITHOUT_MEMORY }
redis.register_function{ function_name = 'penstock_limit_status_1', callback = limit_status,
  flags = WITHOUT_MEMORY }
