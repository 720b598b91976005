"""Every Redis key, each one a function, and nowhere else.

Hash tags decide what one atomic function may touch: `{t:<tenant>}` what a tenant reserved,
`{m:<pool>}` the queue, workers and records of a pool, `{g:<gateway>}` the frames on their way to
one gateway process, `{gateways}` which of them there are, `{policy}` the snapshot, `{uses}` what
gateways report to the control plane, which empties it. No function crosses two tags, and each
role may use its own (`redis_acl`). Pipelines do, so Redis Cluster is unsupported (docs/adr/0024).
"""

# policy snapshot ---------------------------------------------------------------------------------


def policy_version() -> str:
    """Name the string: the version of the snapshot; absent means that there is no snapshot."""
    return "{policy}:version"


def policy_api_keys() -> str:
    """Name the hash: public key id -> encoded `policy.ApiKeyPolicy`."""
    return "{policy}:api-keys"


def policy_tenants() -> str:
    """Name the hash: tenant id -> encoded `policy.TenantPolicy`."""
    return "{policy}:tenants"


def policy_models() -> str:
    """Name the hash: served model name -> encoded `policy.ModelPolicy`."""
    return "{policy}:models"


def known_pools() -> str:
    """Name the set of the names of all pools that the catalogue has, or had: no worker adds one."""
    return "{policy}:pools"


def policy_adapters() -> str:
    """Name the hash: adapter's name -> `policy.AdapterPolicy`; `slug/` -> `policy.AdapterList`."""
    return "{policy}:adapters"


def policy_deltas() -> str:
    """Name the stream of what the latest versions changed: `delta` = `policy.PolicyDelta`."""
    return "{policy}:deltas"


def policy_next(part: str) -> str:
    """Name the hash that a full sync fills before it replaces that of the part in one step."""
    return f"{{policy}}:next-{part}"


def policy_lost_at() -> str:
    """Name the string that expires ten minutes after this Redis was found without a snapshot."""
    return "{policy}:lost-at"


def policy_key_uses() -> str:
    """Name the hash: public key id -> Unix ms of its last use, written at most once a minute."""
    return "{uses}:keys"


def policy_new_digests() -> str:
    """Name the hash: public key id -> digests of its secret, by earlier and by current pepper."""
    return "{uses}:digests"


def refusals() -> str:
    """Name the stream of refusals: `batch` = `refusals.RefusalBatch`; added ones are deleted."""
    return "{uses}:refusals"


# tenant ------------------------------------------------------------------------------------------


def tenant_prefix(tenant_id: str) -> str:
    """Return the hash tag of a tenant; functions take it as their one key."""
    return f"{{t:{tenant_id}}}"


def tenant_reservations(tenant_id: str) -> str:
    """Name the hash: request id -> msgpack of each open `reservations.Reservation`."""
    return f"{tenant_prefix(tenant_id)}:reservations"


# The counters below are kept for each owner: `key:<id>`, `project:<id>` and `tenant`.


def tenant_open(tenant_id: str) -> str:
    """Name the hash: owner -> requests that are open now."""
    return f"{tenant_prefix(tenant_id)}:open"


def tenant_request_window(tenant_id: str, owner: str) -> str:
    """Name the sorted set: request id scored by admission time in ms, of one sliding minute."""
    return f"{tenant_prefix(tenant_id)}:requests:{owner}"


def tenant_token_window(tenant_id: str, owner: str) -> str:
    """Name the hash: second -> tokens of a sliding minute, their `sum` and first second, `from`."""
    return f"{tenant_prefix(tenant_id)}:tokens:{owner}"


def tenant_day(tenant_id: str, day: int) -> str:
    """Name the hash: owner -> tokens, `<owner>:nanos` -> nano-dollars, of a UTC day since 1970."""
    return f"{tenant_prefix(tenant_id)}:day:{day}"


def tenant_month(tenant_id: str, month: int) -> str:
    """Name the hash: `<owner>:tokens` and `<owner>:nanos` of a UTC month such as 202611."""
    return f"{tenant_prefix(tenant_id)}:month:{month}"


def tenant_balance(tenant_id: str) -> str:
    """Name the hash of all that the tenant ever spent, in nano-dollars: `settled`, by requests that
    have ended, and `reserved`, by open ones and by withdrawals (`withdrawal:<id>`) until they are
    booked. Never expires. Redis knows nothing else of credit."""
    return f"{tenant_prefix(tenant_id)}:balance"


def tenant_restored(tenant_id: str) -> str:
    """Name the expiring string: present once day and month were counted anew from usage records."""
    return f"{tenant_prefix(tenant_id)}:restored"


def tenants_with_reservations() -> str:
    """Name the set of tenant ids, a hint for the sweeper: some may have nothing open."""
    return "tenants-with-reservations"


# pool --------------------------------------------------------------------------------------------


def pool_prefix(pool: str) -> str:
    """Return a pool's hash tag, the prefix of its keys; functions take it as their one key."""
    return f"{{m:{pool}}}"


def pool_queue(pool: str) -> str:
    """Name the sorted set: id of each waiting request, scored by when it is withdrawn, in ms."""
    return f"{pool_prefix(pool)}:queue"


def pool_scheduler(pool: str) -> str:
    """Name the hash of numbers. Of the pool: slots, free (credit of live workers), weights (of the
    active flows), kept (headroom, as learned), headroom (if an operator has set it), output, ratio
    and held_ms (averages), floor, payload (bytes held), kv (tokens of all KV caches); tick, heard
    and resumed (ms of the last call, the last heartbeat, the end of the last pause), skipped (ms by
    which the clock was set). By class `:counter`, `:floor`, `:waiting`, `:running`, `:served`."""
    return f"{pool_prefix(pool)}:scheduler"


def pool_flow(pool: str, service_class: str, tenant_id: str) -> str:
    """Name the hash of what one tenant has in one class: counter, weight, share, running, waiting,
    tokens (charged), payload (bytes held), output and ratio (its history), floor; of its projects
    and keys `project:<id>`, `floor:<id>` and `key:<project>:<key>`."""
    return f"{pool_prefix(pool)}:flow:{service_class}:{tenant_id}"


def pool_active_flows(pool: str) -> str:
    """Name the sorted set: `<class>:<tenant>` of flows that share the slots, by last request."""
    return f"{pool_prefix(pool)}:active"


def pool_waiting_tenants(pool: str, service_class: str, *, is_plain: bool = False) -> str:
    """Name the sorted set: tenants with requests (plain: without adapter) waiting, by counter."""
    return f"{pool_prefix(pool)}:tenants:{service_class}" + (":plain" if is_plain else "")


def pool_waiting_projects(pool: str, service_class: str, tenant_id: str) -> str:
    """Name the sorted set: a flow's projects that have requests waiting, scored by counter."""
    return f"{pool_prefix(pool)}:projects:{service_class}:{tenant_id}"


def pool_waiting_keys(pool: str, service_class: str, tenant_id: str, project_id: str) -> str:
    """Name the sorted set: a project's API keys that have requests waiting, scored by counter."""
    return f"{pool_prefix(pool)}:keys:{service_class}:{tenant_id}:{project_id}"


def pool_waiting_requests(
    pool: str,
    service_class: str,
    tenant_id: str,
    project_id: str = "",
    key_id: str = "",
    adapter: str = "",
) -> str:
    """Name the sorted set: an API key's waiting requests, scored by deadline in ms; with an
    adapter, those of them that need it; without a key, all of the tenant's that need none."""
    path = filter(None, (service_class, tenant_id, project_id, key_id, adapter))
    return f"{pool_prefix(pool)}:requests:{':'.join(path)}"


def pool_gateways(pool: str) -> str:
    """Name the sorted set: gateway ids by last sign of life, in ms; of silent ones minus since."""
    return f"{pool_prefix(pool)}:gateways"


def pool_gateway_lost(pool: str, gateway_id: str) -> str:
    """Name the expiring sorted set: ids of a gateway's requests that lost workers held."""
    return f"{pool_prefix(pool)}:lost:{gateway_id}"


def pool_gateway_waiting(pool: str, gateway_id: str) -> str:
    """Name the sorted set: ids of a gateway's requests that wait, by when they expire."""
    return f"{pool_prefix(pool)}:waiting:{gateway_id}"


def pool_request(pool: str, request_id: str) -> str:
    """Name the hash: state, attempt, worker, gateway, path (class, tenant, project, key),
    deadline_ms (until when its first token is promised), expires_ms (when it is withdrawn), wait_ms
    (how long it may wait), prompt and output (bounds), resumable, adapter, started_ms, cancelled
    (while it ran), charged_input and charged_output; tries, preemptions and excluded (workers that
    died with it); resumed (tokens that its envelope resumes from); of each attempt that is over
    `after:<attempt>`, how many of its tokens are counted elsewhere and why it is over; envelope
    until the request is terminal, then record, its encoded `usage.UsageEntry`, and stream_id."""
    return f"{pool_prefix(pool)}:request:{request_id}"


def pool_last_frames(pool: str, request_id: str) -> str:
    """Name the expiring string: a `messages.FrameBatch`, a request's end and what was unread."""
    return f"{pool_prefix(pool)}:last-frames:{request_id}"


def pool_open_requests(pool: str) -> str:
    """Name the sorted set: id of each request that is not terminal, scored by arrival in ms."""
    return f"{pool_prefix(pool)}:open"


def pool_workers(pool: str) -> str:
    """Name the hash: worker id -> encoded `messages.WorkerInfo`."""
    return f"{pool_prefix(pool)}:workers"


def pool_worker_names(pool: str) -> str:
    """Name the hash: worker name -> id of the process that holds it; any earlier one is fenced."""
    return f"{pool_prefix(pool)}:names"


def pool_heartbeats(pool: str) -> str:
    """Name the sorted set: worker id by its last heartbeat in ms; of a fenced one minus since."""
    return f"{pool_prefix(pool)}:heartbeats"


def pool_free_slots(pool: str) -> str:
    """Name the sorted set: worker id scored by the slots it may still be given (its credit)."""
    return f"{pool_prefix(pool)}:free-slots"


def pool_slots(pool: str) -> str:
    """Name the sorted set: worker id scored by all its slots, while it is ready and alive."""
    return f"{pool_prefix(pool)}:slots"


def pool_worker_numbers(pool: str, worker_id: str) -> str:
    """Name the hash of numbers: kv, kv_used (tokens), extra (sequences), step_us, load, looked."""
    return f"{pool_prefix(pool)}:worker:{worker_id}"


def pool_paces(pool: str) -> str:
    """Name the sorted set: worker id scored by its load, times 2^30, plus its step in us."""
    return f"{pool_prefix(pool)}:paces"


def pool_adapter_workers(pool: str, adapter: str) -> str:
    """Name the sorted set: ids of workers that have an adapter, by level; 0: they are to get it."""
    return f"{pool_prefix(pool)}:adapter:{adapter}"


def pool_worker_levels(pool: str, worker_id: str) -> str:
    """Name the hash: adapter -> level, the same for one worker."""
    return f"{pool_prefix(pool)}:levels:{worker_id}"


def pool_worker_adapters(pool: str, worker_id: str) -> str:
    """Name the hash: `slots`, and of each adapter what runs, drains and comes there; its fields
    stand in dispatch/lua/adapters.lua."""
    return f"{pool_prefix(pool)}:adapters:{worker_id}"


def pool_tenant_loads(pool: str, tenant_id: str) -> str:
    """Name the hash: `us` that loads of a tenant's adapters have held engines up since `from`."""
    return f"{pool_prefix(pool)}:loads:{tenant_id}"


def pool_loads(pool: str) -> str:
    """Name the hash: of each adapter `n:<adapter>`, its loads, and `us:<adapter>`, their time."""
    return f"{pool_prefix(pool)}:loads"


def pool_loaded(pool: str) -> str:
    """Name the set: adapters of `pool_loads` that the control plane has not noted yet."""
    return f"{pool_prefix(pool)}:loaded"


def pool_adapters_waiting(pool: str) -> str:
    """Name the hash: adapter -> how many requests wait for it."""
    return f"{pool_prefix(pool)}:adapters-waiting"


def pool_adapter_sources(pool: str) -> str:
    """Name the hash: adapter -> encoded `adapters.AdapterSource`. Gateways may not read it."""
    return f"{{adapter-sources}}:{pool}"


def pool_adapter_pins(pool: str) -> str:
    """Name the string: encoded `adapters.AdapterPins`, written by the control plane."""
    return f"{pool_prefix(pool)}:adapter-pins"


def pool_adapter_base(pool: str) -> str:
    """Name the string: the encoded `adapters.AdapterBase` that a worker has published last."""
    return f"{pool_prefix(pool)}:adapter-base"


def pool_adapter_effects(pool: str) -> str:
    """Name the expiring hash: adapter -> its `adapters.AdapterEffect`, until that is on record."""
    return f"{pool_prefix(pool)}:adapter-effects"


def pool_worker_requests(pool: str, worker_id: str) -> str:
    """Name the set of the request ids that a worker holds."""
    return f"{pool_prefix(pool)}:running:{worker_id}"


def pool_inbox(pool: str, worker_id: str) -> str:
    """Name the list of inbox messages for one worker, in the text form of `codec.decode_inbox`."""
    return f"{pool_prefix(pool)}:inbox:{worker_id}"


def pool_usage(pool: str) -> str:
    """Name the stream of usage: field `record` = encoded `usage.UsageEntry` of a request's end,
    `waste` = encoded `usage.WasteEntry` of an attempt that ended no request, `tally` = encoded
    `usage.EngineTokenCounter`. Entries from a worker's outbox have a field `outbox` = `<outbox
    id> <sequence number>`; beyond `MOST_USAGE_ENTRIES` they stay in the outbox."""
    return f"{pool_prefix(pool)}:usage"


def pool_usage_withheld(pool: str) -> str:
    """Name the expiring set: ids of outboxes with entries that the stream had no room for."""
    return f"{pool_prefix(pool)}:usage-withheld"


def pool_receipts(pool: str, outbox_id: str) -> str:
    """Name the expiring set: numbers of an outbox that PostgreSQL has; the worker removes them."""
    return f"{pool_prefix(pool)}:receipts:{outbox_id}"


def pool_workers_resynced(pool: str) -> str:
    """Name the set of names of the workers whose outboxes this Redis is up to date with."""
    return f"{pool_prefix(pool)}:workers-resynced"


def pool_dead_letters(pool: str) -> str:
    """Name the expiring stream: `request` (id), `envelope`, `record` that three workers lost."""
    return f"{pool_prefix(pool)}:dead-letters"


def pool_epoch(pool: str) -> str:
    """Name the string that tells this Redis from one that has since lost everything."""
    return f"{pool_prefix(pool)}:epoch"


def pool_identity(pool: str) -> str:
    """Name the hash of what a pool serves and whom it did not let in (registration.lua)."""
    return f"{pool_prefix(pool)}:identity"


# gateway -----------------------------------------------------------------------------------------


def known_gateways() -> str:
    """Name the set of ids of gateway processes; the control plane removes those that died."""
    return "{gateways}:known"


def gateways_resynced() -> str:
    """Name the expiring set: ids of gateways that have reserved again in an empty Redis."""
    return "{gateways}:resynced"


def gateway_frames(gateway_id: str, pool: str) -> str:
    """Name the list of encoded `messages.FrameBatch` from a pool's workers to one gateway."""
    return f"{{g:{gateway_id}}}:frames:{pool}"


def gateway_wake(gateway_id: str) -> str:
    """Name the list whose entries have a gateway process look anew which pools it listens to."""
    return f"{{g:{gateway_id}}}:wake"


def gateway_heartbeat(gateway_id: str) -> str:
    """Name the expiring string: present while the gateway process lives."""
    return f"{{g:{gateway_id}}}:alive"


def stream_ticket(ticket_digest: str) -> str:
    """Name the expiring string: the encoded caller behind a one-time websocket ticket."""
    return f"{{ticket:{ticket_digest}}}"
