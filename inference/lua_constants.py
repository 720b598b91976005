"""The numbers that Python and the Lua functions both go by. Each stands here alone; Lua has them
from the preludes that `redis_functions` puts before those of its files that use them."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import WorkerInfo

# dispatch -----------------------------------------------------------------------------------------

# A worker's heartbeat comes each second; one that has been silent for this long is dead. Six beats,
# so that a late one does not make a pool look empty.
WORKER_LEASE_MS: Final = 6_000
# A worker whose event loop has not run for this long is given nothing until it claims again. Twice
# the time between two claims, so that an ordinary delay costs no slot.
STALE_LOOP_MS: Final = 2_000
# A gateway gives a sign of life to its pools twice a second; one that has been silent for this long
# may be dead, and what it has asked for is not started.
GATEWAY_LEASE_MS: Final = 6_000
# How many attempts a request may have had, in a Redis that was lost, that no frame told of. What
# is queued again begins that much later, so that no number is ever given out twice; a worker may
# adopt what it holds as an attempt that is at most this much older.
ATTEMPT_GAP: Final = 100
# Attempts of a request that may end with the death of their worker, or without their adapter.
MOST_TRIES: Final = 3
# Entries that a pool's usage stream holds while nobody collects, of some 700 bytes each: those of
# outboxes, then others, which are in no outbox, before newcomers are refused. At 1,000 requests a
# second an outage of PostgreSQL is on the workers' disks alone after a minute.
MOST_USAGE_ENTRIES: Final = 50_000
UNSHARED_USAGE_ENTRIES: Final = 50_000
# How long a dead letter keeps its payload.
DEAD_LETTER_MS: Final = 86_400_000
# Others that a request lets go first where it cannot run at once, for want of room or since its
# adapter is elsewhere; from then on room is made. Each call that might start it counts, and workers
# claim every second, so it is after as many seconds at most.
MOST_PASSES: Final = 8
# After so long a prefetch is forgotten that the worker has not told of: its message was lost.
COMING_MS: Final = 10_000
# A worker that gave a request back, since it can get no adapter, is given none for so long that
# needs one it does not have in memory.
CLOSED_MS: Final = 5_000
# Adapters of which it is kept how near one worker has them, however many it posts.
MOST_LEVELS: Final = 20_000
# Of a token; a request's cost is counted in these units.
INPUT_WEIGHT: Final = 1
OUTPUT_WEIGHT: Final = 2
# The service classes, as `tenants` defines them, in the order in which engines prefer them.
CLASS_WEIGHTS: Final = {"interactive": 8, "code": 4, "documents": 2, "batch": 1}
# Of the slots, what a class may hold at least however many requests wait; where few wait, more.
CLASS_CEILINGS: Final = {"interactive": 1, "code": 7 / 8, "documents": 3 / 4, "batch": 1 / 2}
# Where an encoded `WorkerInfo`, an array after its tag, has what the door of a pool asks for.
WORKER_FIELDS: Final = ("", *WorkerInfo.__struct_fields__)
# The most that is kept free for newcomers, of a pool's slots.
HEADROOM_MOST: Final = 1 / 8
# Units that headroom may put a flow of weight 1 ahead of others.
HEADROOM_QUANTUM: Final = 4096


# admission ----------------------------------------------------------------------------------------


class Owner(IntEnum):
    """Who a request counts for, in this order."""

    KEY = 1
    PROJECT = 2
    TENANT = 3


class UseKind(IntEnum):
    """What is counted of requests: the position in the list of all use after which that of the
    owners stands, in their order."""

    OPEN = 0
    DAY_TOKENS = 3
    MONTH_TOKENS = 6
    MONTH_NANOS = 9
    DAY_NANOS = 12
    BALANCE = 15
    MINUTE_REQUESTS = 18
    MINUTE_TOKENS = 21


class RequestField(IntEnum):
    """Positions in a packed reservation request that the functions read and change."""

    KEY_ID = 1
    PROJECT_ID = 2
    TOKENS = 3
    NANOS = 4


# What is counted of a month is kept for so long after its first request.
MONTH_TTL_SECONDS: Final = 93 * 86_400


# keys ---------------------------------------------------------------------------------------------

# Stands for an id, before which a suffix ends.
_ID: Final = "\0"


def _suffixes(prefix: str, **named: str) -> dict[str, str]:
    """Return what comes between the prefix of keys and the first id in them, by name."""
    return {name: key.removeprefix(prefix).partition(_ID)[0] for name, key in named.items()}


# What the functions put behind the prefix of a pool, or of a tenant, where Python reads it too.
POOL_SUFFIXES: Final = _suffixes(
    keys.pool_prefix(""),
    active_flows=keys.pool_active_flows(""),
    adapter_workers=keys.pool_adapter_workers("", _ID),
    adapters_waiting=keys.pool_adapters_waiting(""),
    dead_letters=keys.pool_dead_letters(""),
    epoch=keys.pool_epoch(""),
    flow=keys.pool_flow("", _ID, _ID),
    free_slots=keys.pool_free_slots(""),
    gateway_lost=keys.pool_gateway_lost("", _ID),
    gateway_waiting=keys.pool_gateway_waiting("", _ID),
    gateways=keys.pool_gateways(""),
    heartbeats=keys.pool_heartbeats(""),
    identity=keys.pool_identity(""),
    inbox=keys.pool_inbox("", _ID),
    last_frames=keys.pool_last_frames("", _ID),
    loaded=keys.pool_loaded(""),
    loads=keys.pool_loads(""),
    open_requests=keys.pool_open_requests(""),
    paces=keys.pool_paces(""),
    queue=keys.pool_queue(""),
    receipts=keys.pool_receipts("", _ID),
    request=keys.pool_request("", _ID),
    scheduler=keys.pool_scheduler(""),
    slots=keys.pool_slots(""),
    tenant_loads=keys.pool_tenant_loads("", _ID),
    usage=keys.pool_usage(""),
    usage_withheld=keys.pool_usage_withheld(""),
    waiting_requests=keys.pool_waiting_requests("", _ID, _ID),
    waiting_tenants=keys.pool_waiting_tenants("", _ID),
    worker_adapters=keys.pool_worker_adapters("", _ID),
    worker_levels=keys.pool_worker_levels("", _ID),
    worker_names=keys.pool_worker_names(""),
    worker_numbers=keys.pool_worker_numbers("", _ID),
    worker_requests=keys.pool_worker_requests("", _ID),
    workers=keys.pool_workers(""),
    workers_resynced=keys.pool_workers_resynced(""),
)
TENANT_SUFFIXES: Final = _suffixes(
    keys.tenant_prefix(""),
    balance=keys.tenant_balance(""),
    day=keys.tenant_day("", 0).removesuffix("0"),
    month=keys.tenant_month("", 0).removesuffix("0"),
    open=keys.tenant_open(""),
    request_window=keys.tenant_request_window("", _ID),
    reservations=keys.tenant_reservations(""),
    token_window=keys.tenant_token_window("", _ID),
)


# as Lua -------------------------------------------------------------------------------------------

LuaValue = int | float | Sequence[str] | Mapping[str, int | float] | Mapping[str, str]

DISPATCH_CONSTANTS: Final[Mapping[str, LuaValue]] = {
    "WORKER_LEASE_MS": WORKER_LEASE_MS,
    "STALE_LOOP_MS": STALE_LOOP_MS,
    "GATEWAY_LEASE_MS": GATEWAY_LEASE_MS,
    "ATTEMPT_GAP": ATTEMPT_GAP,
    "MOST_TRIES": MOST_TRIES,
    "DEAD_LETTER_MS": DEAD_LETTER_MS,
    "MOST_USAGE_ENTRIES": MOST_USAGE_ENTRIES,
    "UNSHARED_USAGE_ENTRIES": UNSHARED_USAGE_ENTRIES,
    "MOST_PASSES": MOST_PASSES,
    "COMING_MS": COMING_MS,
    "CLOSED_MS": CLOSED_MS,
    "MOST_LEVELS": MOST_LEVELS,
    "INPUT_WEIGHT": INPUT_WEIGHT,
    "OUTPUT_WEIGHT": OUTPUT_WEIGHT,
    "CLASSES": list(CLASS_WEIGHTS),
    "CLASS_WEIGHTS": CLASS_WEIGHTS,
    "CLASS_CEILINGS": CLASS_CEILINGS,
    "HEADROOM_MOST": HEADROOM_MOST,
    "HEADROOM_QUANTUM": HEADROOM_QUANTUM,
    "WORKER_ENGINE": WORKER_FIELDS.index("engine") + 1,
    "WORKER_STATE": WORKER_FIELDS.index("state") + 1,
    "WORKER_DIGEST": WORKER_FIELDS.index("model_digest") + 1,
    "SUFFIX": POOL_SUFFIXES,
}
ADMISSION_CONSTANTS: Final[Mapping[str, LuaValue]] = {
    **{owner.name: owner.value for owner in Owner},
    "OWNERS": len(Owner),
    **{kind.name: kind.value for kind in UseKind},
    **{f"REQUEST_{field.name}": field.value for field in RequestField},
    "MONTH_TTL_SECONDS": MONTH_TTL_SECONDS,
    "SUFFIX": TENANT_SUFFIXES,
}


def prelude(constants: Mapping[str, LuaValue]) -> str:
    """Return the constants as Lua locals, one a line."""
    return "".join(f"local {name} = {_literal(value)}\n" for name, value in constants.items())


def _literal(value: LuaValue) -> str:
    match value:
        case int() | float():
            return repr(value)
        case Mapping():
            parts = [f"{name} = {each!r}" for name, each in value.items()]
        case _:
            parts = [f"'{name}'" for name in value]
    return "{ " + ", ".join(parts) + " }"
