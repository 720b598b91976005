-- Usage on its way to PostgreSQL: the stream of a pool, and the receipts that let workers forget what
-- their outboxes hold (docs/adr/0013). Sixth part of the dispatch library.
--
-- An entry of an outbox is in the stream, or it has a receipt, or it is lost: acknowledging moves it
-- from one to the other at once. So whoever finds neither may append it again, and it is never there
-- twice at a time.

-- `origin` is `<outbox id> <seq>`, '' for what is in no outbox. -> the entry's id in the stream
local function append_usage(prefix, field, entry, origin)
  if origin == '' then
    return redis.call('XADD', prefix .. ':usage', '*', field, entry)
  end
  return redis.call('XADD', prefix .. ':usage', '*', field, entry, 'outbox', origin)
end

-- Whether a stream holds this very entry under the id. A stale replica that became master gives ids
-- out again, so an id alone proves nothing.
local function is_in_stream(stream, stream_id, origin)
  local found = stream_id ~= '' and redis.call('XRANGE', stream, stream_id, stream_id)[1]
  if not found then
    return false
  end
  for place = 1, #found[2], 2 do
    if found[2][place] == 'outbox' then
      return found[2][place + 1] == origin
    end
  end
  return false
end

local function is_told(prefix, outbox_id, seq, stream_id)
  return is_in_stream(prefix .. ':usage', stream_id, outbox_id .. ' ' .. seq)
    or redis.call('SISMEMBER', prefix .. ':receipts:' .. outbox_id, seq) == 1
end

-- ARGV: outbox_id and, for each entry, seq and the id that it had in the stream, '' if none.
-- -> the seqs that are neither in the stream nor have a receipt
local function missing_usage(keys, args)
  local missing = {}
  for place = 2, #args, 2 do
    if not is_told(keys[1], args[1], args[place], args[place + 1]) then
      missing[#missing + 1] = args[place]
    end
  end
  return missing
end

-- ARGV: outbox_id and, for each entry, seq, the id that it had in the stream, its field
-- (record|waste|tally) and the entry itself. -> the id of each in the stream. What is told already is
-- left alone.
local function append_missing_usage(keys, args)
  local ids = {}
  for place = 2, #args, 4 do
    local seq, stream_id, field = args[place], args[place + 1], args[place + 2]
    if field ~= 'record' and field ~= 'waste' and field ~= 'tally' then
      return redis.error_reply('ERR expected record, waste or tally, got ' .. field)
    elseif is_told(keys[1], args[1], seq, stream_id) then
      ids[#ids + 1] = stream_id
    else
      ids[#ids + 1] = append_usage(keys[1], field, args[place + 3], args[1] .. ' ' .. seq)
    end
  end
  return ids
end

-- ARGV: group receipt_ttl_seconds and, for each entry, its id in the stream and its origin, '' if it is
-- in no outbox. -> how many left the stream. For a consumer that has committed them.
local function acknowledge_usage(keys, args)
  local stream, left = keys[1] .. ':usage', 0
  for place = 3, #args, 2 do
    redis.call('XACK', stream, args[1], args[place])
    left = left + redis.call('XDEL', stream, args[place])
    local outbox_id, seq = string.match(args[place + 1], '^(%S+) (%d+)$')
    if outbox_id then
      local receipts = keys[1] .. ':receipts:' .. outbox_id
      redis.call('SADD', receipts, seq)
      redis.call('EXPIRE', receipts, args[2])
    end
  end
  return left
end
