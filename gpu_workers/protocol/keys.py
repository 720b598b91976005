"""Every Redis key and function name, each one a function or constant, and nowhere else.

Hash tags decide what one atomic function may touch: `{t:<tenant>}` what a tenant reserved,
`{m:<pool>}` the queue, workers and records of a pool, `{g:<gateway>}` the frames on their way to
one gateway process, `{policy}` the snapshot, `{uses}` what gateways tell of keys. No call crosses
two tags, so Redis Cluster works.
"""

# Redis Function libraries, named with the wire's version so that old and new processes can live
# side by side during an upgrade.
ADMISSION_LIBRARY = "penstock_admission_2"
DISPATCH_LIBRARY = "penstock_dispatch_1"

FUNCTION_RESERVE = "penstock_reserve_2"
FUNCTION_TRUE_DOWN = "penstock_true_down_2"
FUNCTION_SETTLE = "penstock_settle_2"
FUNCTION_STANDING = "penstock_standing_2"

FUNCTION_ENQUEUE = "penstock_enqueue_1"
FUNCTION_REGISTER = "penstock_register_1"
FUNCTION_CLAIM = "penstock_claim_1"
FUNCTION_HELD = "penstock_held_1"
FUNCTION_FINISH = "penstock_finish_1"
FUNCTION_CANCEL = "penstock_cancel_1"
FUNCTION_REAP = "penstock_reap_1"


# policy snapshot ---------------------------------------------------------------------------------


def policy_version() -> str:
    """String: the version of the snapshot; absent means that there is no snapshot."""
    return "{policy}:version"


def policy_api_keys() -> str:
    """Hash: public key id -> encoded `policy.ApiKeyPolicy`."""
    return "{policy}:api-keys"


def policy_tenants() -> str:
    """Hash: tenant id -> encoded `policy.TenantPolicy`."""
    return "{policy}:tenants"


def policy_models() -> str:
    """Hash: served model name -> encoded `policy.ModelPolicy`."""
    return "{policy}:models"


def policy_next_api_keys() -> str:
    """Hash: where all rows are written first, to take the place of `policy_api_keys` at once."""
    return "{policy}:next-api-keys"


def policy_next_tenants() -> str:
    """Hash: the same for `policy_tenants`."""
    return "{policy}:next-tenants"


# what gateways tell the control plane, which reads and empties it ---------------------------------


def policy_key_uses() -> str:
    """Hash: public key id -> "<Unix ms of its last use>", written at most once a minute a key."""
    return "{uses}:keys"


def policy_new_digests() -> str:
    """Hash: public key id -> the digest of a key under the earlier pepper that it proved itself
    under, then under the current one, 32 bytes each; of a rotated key only the one that stays."""
    return "{uses}:digests"


# tenant ------------------------------------------------------------------------------------------


def tenant_prefix(tenant_id: str) -> str:
    """The hash tag of a tenant; functions take it as their one key."""
    return f"{{t:{tenant_id}}}"


def tenant_reservations(tenant_id: str) -> str:
    """Hash: request id -> msgpack of each open reservation, see `reservations.Reservation`."""
    return f"{tenant_prefix(tenant_id)}:reservations"


# The counters below are kept for each owner: `key:<id>`, `project:<id>` and `tenant`.


def tenant_open(tenant_id: str) -> str:
    """Hash: owner -> requests that are open now."""
    return f"{tenant_prefix(tenant_id)}:open"


def tenant_request_window(tenant_id: str, owner: str) -> str:
    """Sorted set: request id scored by admission time in ms, one sliding minute."""
    return f"{tenant_prefix(tenant_id)}:requests:{owner}"


def tenant_token_window(tenant_id: str, owner: str) -> str:
    """Hash: second -> tokens of a sliding minute, `sum` of them, `from` which second on."""
    return f"{tenant_prefix(tenant_id)}:tokens:{owner}"


def tenant_day(tenant_id: str, day: int) -> str:
    """Hash: owner -> tokens of a UTC day, counted in days since the Unix epoch."""
    return f"{tenant_prefix(tenant_id)}:day:{day}"


def tenant_month(tenant_id: str, month: int) -> str:
    """Hash: `<owner>:tokens` and `<owner>:nanos` of a UTC month such as 202611."""
    return f"{tenant_prefix(tenant_id)}:month:{month}"


def tenants_with_reservations() -> str:
    """Set of tenant ids, a hint for the sweeper; it may name a tenant with nothing open."""
    return "tenants-with-reservations"


# pool --------------------------------------------------------------------------------------------


def pool_prefix(pool: str) -> str:
    """The hash tag of a pool and the prefix of all its keys; functions take it as their one key."""
    return f"{{m:{pool}}}"


def pool_queue(pool: str) -> str:
    """Sorted set: request id scored by its sequence in the pool; first come, first served."""
    return f"{pool_prefix(pool)}:queue"


def pool_sequence(pool: str) -> str:
    """String: the last sequence number that a request of this pool was queued under."""
    return f"{pool_prefix(pool)}:sequence"


def pool_deadlines(pool: str) -> str:
    """Sorted set: request id of each request that no worker has taken, scored by its deadline."""
    return f"{pool_prefix(pool)}:deadlines"


def pool_request(pool: str, request_id: str) -> str:
    """Hash: state, attempt, worker, gateway, tenant, deadline_ms; envelope until the request is
    terminal, then record, its encoded `messages.UsageEntry`."""
    return f"{pool_prefix(pool)}:request:{request_id}"


def pool_open_requests(pool: str) -> str:
    """Sorted set: request id of each request that is not terminal, scored by arrival in ms."""
    return f"{pool_prefix(pool)}:open"


def pool_workers(pool: str) -> str:
    """Hash: worker id -> encoded `messages.WorkerInfo`."""
    return f"{pool_prefix(pool)}:workers"


def pool_worker_names(pool: str) -> str:
    """Hash: worker name -> id of the process that holds it; any earlier one is fenced."""
    return f"{pool_prefix(pool)}:names"


def pool_heartbeats(pool: str) -> str:
    """Sorted set: worker id scored by its last heartbeat in ms of Redis TIME; of a fenced worker,
    minus the time of its fencing."""
    return f"{pool_prefix(pool)}:heartbeats"


def pool_free_slots(pool: str) -> str:
    """Sorted set: worker id scored by the slots it may still be given (its credit)."""
    return f"{pool_prefix(pool)}:free-slots"


def pool_worker_requests(pool: str, worker_id: str) -> str:
    """Set of the request ids that a worker holds."""
    return f"{pool_prefix(pool)}:running:{worker_id}"


def pool_inbox(pool: str, worker_id: str) -> str:
    """List of inbox messages for one worker, in the text form of `codec.decode_inbox`."""
    return f"{pool_prefix(pool)}:inbox:{worker_id}"


def pool_usage(pool: str) -> str:
    """Stream of terminal records, field `record` = encoded `messages.UsageEntry`."""
    return f"{pool_prefix(pool)}:usage"


def known_pools() -> str:
    """Set of the pools that a worker has ever registered for."""
    return "pools"


USAGE_CONSUMER_GROUP = "control-plane"
USAGE_FIELD = "record"


# gateway -----------------------------------------------------------------------------------------


def gateway_frames(gateway_id: str) -> str:
    """List of encoded `messages.FrameBatch` on their way to one gateway process."""
    return f"{{g:{gateway_id}}}:frames"


def gateway_heartbeat(gateway_id: str) -> str:
    """String with a time to live: present while the gateway process lives."""
    return f"{{g:{gateway_id}}}:alive"


def stream_ticket(ticket_digest: str) -> str:
    """String with a time to live: the encoded caller behind a one-time websocket ticket."""
    return f"{{ticket:{ticket_digest}}}"
