-- Usage on its way to PostgreSQL: the stream of a pool, and the receipts that let workers forget
-- what their outboxes hold (docs/adr/0013). Part of the dispatch library.
--
-- An entry of an outbox is in the stream, or it has a receipt, or it is lost: acknowledging moves
-- it from one to the other at once. So whoever finds neither may append it again, and it is never
-- there twice at a time.
--
-- While nobody collects, the stream takes so many entries and no more. One of an outbox stays there
-- alone then, until its worker finds room and appends it; `usage-withheld` has the outboxes with
-- such entries. What is in no outbox is always taken: it is what `enqueue` keeps room for.

local WITHHELD_TTL_SECONDS = 604800  -- a worker that is away for longer appends all of it again

-- Append an entry to the stream; return its id there, '' where it was left to its outbox. `origin`
-- is `<outbox id> <seq>`, '' for what is in no outbox.
local function append_entry(prefix, field, entry, origin)
  local stream = prefix .. SUFFIX.usage
  if origin == '' then
    return redis.call('XADD', stream, '*', field, entry)
  elseif redis.call('XLEN', stream) >= MOST_USAGE_ENTRIES then
    local withheld = prefix .. SUFFIX.usage_withheld
    redis.call('SADD', withheld, string.match(origin, '^%S+'))
    redis.call('EXPIRE', withheld, WITHHELD_TTL_SECONDS)
    return ''
  end
  return redis.call('XADD', stream, '*', field, entry, 'outbox', origin)
end

-- Return whether so much waits to be collected that no more may be added to it.
local function is_usage_full(prefix)
  return redis.call('XLEN', prefix .. SUFFIX.usage) >= MOST_USAGE_ENTRIES + UNSHARED_USAGE_ENTRIES
end

-- Return whether a stream holds this very entry under the id. A stale replica that became master
-- gives ids out again, so an id alone proves nothing.
local function is_in_stream(stream, stream_id, origin)
  local found = stream_id ~= '' and redis.call('XRANGE', stream, stream_id, stream_id)[1]
  if not found then
    return false
  end
  local _, fields = unpack(found)
  for index = 1, #fields, 2 do
    local field, value = fields[index], fields[index + 1]
    if field == 'outbox' then
      return value == origin
    end
  end
  return false
end

-- Return whether an entry of an outbox is in the stream or has a receipt.
local function is_recorded(prefix, outbox_id, seq, stream_id)
  return is_in_stream(prefix .. SUFFIX.usage, stream_id, outbox_id .. ' ' .. seq)
    or redis.call('SISMEMBER', prefix .. SUFFIX.receipts .. outbox_id, seq) == 1
end

-- Find entries of an outbox that are not recorded: outbox_id and, for each entry, seq and the id
-- that it had in the stream, '' if none.
-- Reply: the seqs of those that are neither in the stream nor have a receipt.
local function missing_usage(keys, args)
  local prefix, outbox_id, missing = keys[1], args[1], {}
  for index = 2, #args, 2 do
    local seq, stream_id = args[index], args[index + 1]
    if not is_recorded(prefix, outbox_id, seq, stream_id) then
      missing[#missing + 1] = seq
    end
  end
  return missing
end

-- Append the entries of an outbox that are not recorded: outbox_id and, for each entry, seq, the id
-- that it had in the stream, '' if none, its field (record|waste|tally) and the entry itself.
-- Reply: the id of each in the stream, '' of those that it has no room for.
local function append_usage(keys, args)
  local prefix, outbox_id, ids = keys[1], args[1], {}
  for index = 2, #args, 4 do
    local seq, stream_id, field, entry = unpack(args, index, index + 3)
    if field ~= 'record' and field ~= 'waste' and field ~= 'tally' then
      return redis.error_reply('ERR expected record, waste or tally, got ' .. field)
    elseif is_recorded(prefix, outbox_id, seq, stream_id) then
      ids[#ids + 1] = stream_id
    else
      ids[#ids + 1] = append_entry(prefix, field, entry, outbox_id .. ' ' .. seq)
    end
  end
  return ids
end

-- Take entries out of the stream for a consumer that has committed them, and leave receipts: group,
-- receipt_ttl_seconds and, for each entry, its id in the stream and its origin, '' if it is in no
-- outbox. Reply: how many left the stream.
local function acknowledge_usage(keys, args)
  local prefix, group, receipt_ttl_seconds = keys[1], args[1], args[2]
  local stream, left = prefix .. SUFFIX.usage, 0
  for index = 3, #args, 2 do
    local stream_id, origin = args[index], args[index + 1]
    redis.call('XACK', stream, group, stream_id)
    left = left + redis.call('XDEL', stream, stream_id)
    local outbox_id, seq = string.match(origin, '^(%S+) (%d+)$')
    if outbox_id then
      local receipts = prefix .. SUFFIX.receipts .. outbox_id
      redis.call('SADD', receipts, seq)
      redis.call('EXPIRE', receipts, receipt_ttl_seconds)
    end
  end
  return left
end
