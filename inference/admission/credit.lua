-- What takes credit away, and what Redis is told of the ledger: its count of all that a tenant has ever
-- spent follows what is on record (docs/adr/0014). Last part of the admission library, after
-- admission.lua.

local SURE_AFTER_MS = 50000         -- two looks are a minute apart
local DOUBT_TTL_SECONDS = 180

-- ARGV: withdrawal_id nanos most -> what is set aside of the credit for it: nanos, or what is left
-- below `most`, all that may ever be spent. Asking again for the same withdrawal is free. It is kept
-- until `withdrawn`.
local function withdraw(keys, args)
  call = redis.call
  local balance, field = keys[1] .. ':balance', 'withdrawal:' .. args[1]
  local nanos = tonumber(call('HGET', balance, field))
  if not nanos then
    nanos = math.max(0, math.min(tonumber(args[2]), tonumber(args[3]) - spent_by(balance)))
    call('HSET', balance, field, nanos)
    call('HINCRBY', balance, 'reserved', nanos)
  end
  return nanos
end

-- ARGV: withdrawal_id -> 1 | 0 it is not there. By now it is booked, and no credit any more, or it
-- was given up.
local function withdrawn(keys, args)
  call = redis.call
  local balance, field = keys[1] .. ':balance', 'withdrawal:' .. args[1]
  local nanos = tonumber(call('HGET', balance, field))
  if not nanos then
    return 0
  end
  call('HINCRBY', balance, 'reserved', -nanos)
  return call('HDEL', balance, field)
end

-- ARGV: nanos -> 1 | 0. What has ended has cost at least what is on record: where a Redis was lost
-- with what nobody had recorded yet, it comes back with the records. What is on record may still be
-- reserved: it counts when it is settled, and not here as well.
local function raise_spend(keys, args)
  call = redis.call
  local balance, nanos = keys[1] .. ':balance', tonumber(args[1])
  local settled = tonumber(call('HGET', balance, 'settled')) or 0
  if nanos <= settled then
    return 0
  end
  local counted = call('HGETALL', balance)
  for index = 1, #counted, 2 do
    local name, amount = counted[index], tonumber(counted[index + 1])
    if name == 'reserved' then
      nanos = nanos - amount
    elseif string.find(name, '^withdrawal:') then
      nanos = nanos + amount
    end
  end
  if nanos <= settled then
    return 0
  end
  call('HSET', balance, 'settled', string.format('%.0f', nanos))
  return 1
end

-- ARGV: nanos [now] -> by how much `settled` was lowered. It is at least so much above what is on
-- record; 0 if it is not. Lowered is by what two looks agree upon: what the first missed, as an outbox
-- was late, the second finds.
local function lower_spend(keys, args)
  call = redis.call
  local tenant, nanos, now = keys[1], tonumber(args[1]), now_ms(args[2])
  local doubt = tenant .. ':overcounted'
  local seen = call('HMGET', doubt, 'nanos', 'since')
  local since = tonumber(seen[2]) or now
  nanos = math.min(nanos, tonumber(seen[1]) or nanos)
  local lowered = now - since >= SURE_AFTER_MS and nanos or 0
  if nanos > lowered then
    call('HSET', doubt, 'nanos', string.format('%.0f', nanos), 'since', since)
    call('EXPIRE', doubt, DOUBT_TTL_SECONDS)
    return 0
  end
  call('DEL', doubt)
  if lowered > 0 then
    call('HINCRBY', tenant .. ':balance', 'settled', string.format('%.0f', -lowered))
  end
  return lowered
end

redis.register_function('penstock_withdraw_1', withdraw)
redis.register_function('penstock_withdrawn_1', withdrawn)
redis.register_function('penstock_raise_spend_1', raise_spend)
redis.register_function('penstock_lower_spend_1', lower_spend)
