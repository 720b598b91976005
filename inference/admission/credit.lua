-- What takes credit away, and how Redis is kept level with the ledger: its count of all that a
-- tenant has ever spent follows what is on record (docs/adr/0014). Last part of the admission
-- library, after admission.lua.

local SURE_AFTER_MS = 50000         -- two looks are a minute apart
local DOUBT_TTL_SECONDS = 180

-- Hold credit for a withdrawal of so many nano-dollars: that much, or what is left below `most`,
-- all that may ever be spent. Asking again for the same withdrawal is free. The hold stays until
-- `release_hold`.
-- Reply: the nano-dollars that are held.
local function place_hold(keys, args)
  call = redis.call
  local tenant, withdrawal_id, nanos, most = keys[1], unpack(args)
  local balance, field = tenant .. SUFFIX.balance, 'withdrawal:' .. withdrawal_id
  local held = tonumber(call('HGET', balance, field))
  if not held then
    held = math.max(0, math.min(tonumber(nanos), tonumber(most) - spent_by(balance)))
    call('HSET', balance, field, held)
    call('HINCRBY', balance, 'reserved', held)
  end
  return held
end

-- Release the hold of a withdrawal: by now it is booked, and no credit any more, or was given up.
-- Reply: 1, or 0 if there is no hold.
local function release_hold(keys, args)
  call = redis.call
  local tenant, withdrawal_id = keys[1], unpack(args)
  local balance, field = tenant .. SUFFIX.balance, 'withdrawal:' .. withdrawal_id
  local held = tonumber(call('HGET', balance, field))
  if not held then
    return 0
  end
  call('HINCRBY', balance, 'reserved', -held)
  return call('HDEL', balance, field)
end

-- Return how much of what is on record may be reserved still: it counts when it is settled, and not
-- before. Holds are reserved, and not on record.
local function open_spend(balance)
  local counted, open = call('HGETALL', balance), 0
  for index = 1, #counted, 2 do
    local field, nanos = counted[index], tonumber(counted[index + 1])
    if field == 'reserved' then
      open = open + nanos
    elseif string.find(field, '^withdrawal:') then
      open = open - nanos
    end
  end
  return open
end

-- Raise what has ended to what is on record, in nano-dollars: it has cost at least that much. Where
-- a Redis was lost with what nobody had recorded yet, that comes back with the records.
-- Reply: 1 if it was raised, else 0.
local function raise_spend(keys, args)
  call = redis.call
  local tenant, nanos = keys[1], unpack(args)
  local balance = tenant .. SUFFIX.balance
  local settled = tonumber(call('HGET', balance, 'settled')) or 0
  nanos = tonumber(nanos)
  if nanos <= settled then
    return 0
  end
  nanos = nanos - open_spend(balance)
  if nanos <= settled then
    return 0
  end
  call('HSET', balance, 'settled', string.format('%.0f', nanos))
  return 1
end

-- Lower what has ended by what it is above the record, in nano-dollars (0 if it is not): by what
-- two looks agree upon, since what the first missed, as an outbox was late, the second finds.
-- Reply: by how much it was lowered.
local function lower_spend(keys, args)
  call = redis.call
  local tenant, nanos, now = keys[1], unpack(args)
  local doubt = tenant .. ':overcounted'
  nanos, now = tonumber(nanos), now_ms(now)
  local nanos_before, since = unpack(call('HMGET', doubt, 'nanos', 'since'))
  since = tonumber(since) or now
  nanos = math.min(nanos, tonumber(nanos_before) or nanos)
  local lowered = now - since >= SURE_AFTER_MS and nanos or 0
  if nanos > lowered then
    call('HSET', doubt, 'nanos', string.format('%.0f', nanos), 'since', since)
    call('EXPIRE', doubt, DOUBT_TTL_SECONDS)
    return 0
  end
  call('DEL', doubt)
  if lowered > 0 then
    call('HINCRBY', tenant .. SUFFIX.balance, 'settled', string.format('%.0f', -lowered))
  end
  return lowered
end

redis.register_function('penstock_place_hold_1', place_hold)
redis.register_function{ function_name = 'penstock_release_hold_1', callback = release_hold,
  flags = WITHOUT_MEMORY }
redis.register_function('penstock_raise_spend_1', raise_spend)
redis.register_function{ function_name = 'penstock_lower_spend_1', callback = lower_spend,
  flags = WITHOUT_MEMORY }
