-- The counters that one tenant's limits are compared with. Second part of the admission library,
-- after windows.lua.
--
-- A request counts at three owners: its key, its project and its tenant, in this order. Sequences
-- at once and the tokens and nano-dollars of day and month are counted for each; the sliding
-- minutes only where a limit asks for it, since they forget by themselves within a minute. What a
-- tenant has ever spent is counted always, in nano-dollars: `settled` by what has ended, `reserved`
-- by what is open and by holds on the credit. Its limit is all credit that it was ever given, so
-- nothing here needs to know what is left of it.

local DAY_TTL_SECONDS = 3 * 86400   -- from the first request of the day on

-- Return the owners of a request, in their order, and the keys and fields that it counts at.
local function account_of(tenant, key_id, project_id, at)
  local key, project = 'key:' .. key_id, 'project:' .. project_id
  local day, month = periods(tenant, at)
  return { key, project, 'tenant', tenant = tenant, open = tenant .. SUFFIX.open, day = day,
    month = month, balance = tenant .. SUFFIX.balance,
    key_tokens = key .. ':tokens', key_nanos = key .. ':nanos',
    project_tokens = project .. ':tokens', project_nanos = project .. ':nanos' }
end

-- Return a list of the sequences of the requests that are open at key, project and tenant.
local function read_open(account)
  return call('HMGET', account.open, account[KEY], account[PROJECT], 'tenant')
end

-- Return a list of the day's tokens at key, project and tenant, then of its nano-dollars.
local function read_day(account)
  return call('HMGET', account.day, account[KEY], account[PROJECT], 'tenant', account.key_nanos,
    account.project_nanos, 'tenant:nanos')
end

-- Return the same of the month.
local function read_month(account)
  return call('HMGET', account.month, account.key_tokens, account.project_tokens, 'tenant:tokens',
    account.key_nanos, account.project_nanos, 'tenant:nanos')
end

-- Write what `read_day` reads.
local function write_day(account, key_tokens, project_tokens, tokens, key_nanos, project_nanos,
  nanos)
  call('HSET', account.day, account[KEY], key_tokens, account[PROJECT], project_tokens,
    'tenant', tokens, account.key_nanos, key_nanos, account.project_nanos, project_nanos,
    'tenant:nanos', nanos)
end

-- Write what `read_month` reads.
local function write_month(account, key_tokens, project_tokens, tokens, key_nanos, project_nanos,
  nanos)
  call('HSET', account.month, account.key_tokens, key_tokens, account.project_tokens,
    project_tokens, 'tenant:tokens', tokens, account.key_nanos, key_nanos,
    account.project_nanos, project_nanos, 'tenant:nanos', nanos)
end

-- Return what a tenant has ever spent or reserved, in nano-dollars.
local function spent_by(balance)
  local settled, reserved = unpack(call('HMGET', balance, 'settled', 'reserved'))
  return (tonumber(settled) or 0) + (tonumber(reserved) or 0)
end

-- Read the use, a list of numbers: of each kind, from the position after it on, that of key,
-- project and tenant; the sliding minutes only where a limit of the plan needs them. Return it, and
-- by owner the tokens of this second in its window.
local function read_use(account, plan, now)
  local key_open, project_open, tenant_open = unpack(read_open(account))
  local key_day, project_day, tenant_day, key_day_nanos, project_day_nanos, tenant_day_nanos =
    unpack(read_day(account))
  local key_month, project_month, tenant_month, key_month_nanos, project_month_nanos,
    tenant_month_nanos = unpack(read_month(account))
  -- In the order of inference/lua_constants.py: OPEN, DAY_TOKENS, MONTH_TOKENS, MONTH_NANOS,
  -- DAY_NANOS, BALANCE, which only tenants have.
  local use = { tonumber(key_open) or 0, tonumber(project_open) or 0, tonumber(tenant_open) or 0,
    tonumber(key_day) or 0, tonumber(project_day) or 0, tonumber(tenant_day) or 0,
    tonumber(key_month) or 0, tonumber(project_month) or 0, tonumber(tenant_month) or 0,
    tonumber(key_month_nanos) or 0, tonumber(project_month_nanos) or 0,
    tonumber(tenant_month_nanos) or 0, tonumber(key_day_nanos) or 0,
    tonumber(project_day_nanos) or 0, tonumber(tenant_day_nanos) or 0,
    0, 0, plan.needs_balance and spent_by(account.balance) or 0 }
  local of_second, tenant = {}, account.tenant
  for _, owner in ipairs(plan.requests) do
    use[MINUTE_REQUESTS + owner] = requests_in(request_window(tenant, account[owner]), now)
  end
  for _, owner in ipairs(plan.tokens) do
    use[MINUTE_TOKENS + owner], of_second[owner] = tokens_in(token_window(tenant, account[owner]),
      now)
  end
  account.is_new_day, account.is_new_month = not tenant_day, not tenant_month
  return use, of_second
end

-- Write the use of all owners with what the request adds; in one function nothing comes between.
local function take(account, plan, request_id, use, of_second, tokens, nanos, sequences, now)
  local tenant = account.tenant
  for _, owner in ipairs(plan.requests) do
    add_request(request_window(tenant, account[owner]), now, request_id,
      use[MINUTE_REQUESTS + owner])
  end
  for _, owner in ipairs(plan.tokens) do
    add_tokens(token_window(tenant, account[owner]), now, use[MINUTE_TOKENS + owner],
      of_second[owner], tokens)
  end
  call('HSET', account.open, account[KEY], use[OPEN + KEY] + sequences, account[PROJECT],
    use[OPEN + PROJECT] + sequences, 'tenant', use[OPEN + TENANT] + sequences)
  write_day(account, use[DAY_TOKENS + KEY] + tokens, use[DAY_TOKENS + PROJECT] + tokens,
    use[DAY_TOKENS + TENANT] + tokens, use[DAY_NANOS + KEY] + nanos,
    use[DAY_NANOS + PROJECT] + nanos, use[DAY_NANOS + TENANT] + nanos)
  write_month(account, use[MONTH_TOKENS + KEY] + tokens, use[MONTH_TOKENS + PROJECT] + tokens,
    use[MONTH_TOKENS + TENANT] + tokens, use[MONTH_NANOS + KEY] + nanos,
    use[MONTH_NANOS + PROJECT] + nanos, use[MONTH_NANOS + TENANT] + nanos)
  if nanos ~= 0 then
    call('HINCRBY', account.balance, 'reserved', nanos)
  end
  if account.is_new_day then
    call('EXPIRE', account.day, DAY_TTL_SECONDS)
  end
  if account.is_new_month then
    call('EXPIRE', account.month, MONTH_TTL_SECONDS)
  end
end

-- Add to what the day and the month count, where they are still counted.
local function add_to_periods(account, tokens, nanos)
  local key_tokens, project_tokens, tenant_tokens, key_nanos, project_nanos, tenant_nanos =
    unpack(read_day(account))
  if tenant_tokens then
    write_day(account, (tonumber(key_tokens) or 0) + tokens,
      (tonumber(project_tokens) or 0) + tokens, tonumber(tenant_tokens) + tokens,
      (tonumber(key_nanos) or 0) + nanos, (tonumber(project_nanos) or 0) + nanos,
      (tonumber(tenant_nanos) or 0) + nanos)
  end
  key_tokens, project_tokens, tenant_tokens, key_nanos, project_nanos, tenant_nanos =
    unpack(read_month(account))
  if tenant_tokens then
    write_month(account, (tonumber(key_tokens) or 0) + tokens,
      (tonumber(project_tokens) or 0) + tokens, tonumber(tenant_tokens) + tokens,
      (tonumber(key_nanos) or 0) + nanos, (tonumber(project_nanos) or 0) + nanos,
      (tonumber(tenant_nanos) or 0) + nanos)
  end
end

-- Count a request's sequences no longer as open at each owner, and what it took as spent.
local function close(account, nanos, sequences)
  if nanos ~= 0 then
    call('HINCRBY', account.balance, 'reserved', -nanos)
    call('HINCRBY', account.balance, 'settled', nanos)
  end
  local left, gone, open = {}, {}, read_open(account)
  for owner = 1, OWNERS do
    local count = (tonumber(open[owner]) or 0) - sequences
    if count > 0 then
      left[#left + 1], left[#left + 2] = account[owner], count
    else
      gone[#gone + 1] = account[owner]
    end
  end
  if #left > 0 then
    call('HSET', account.open, unpack(left))
  end
  if #gone > 0 then
    call('HDEL', account.open, unpack(gone))
  end
end
