"""Everything in Redis has an end: a time to live, or a bound. The keys of both servers are read
after each test, and after the chaos drills; one that is not on this list, or ends otherwise than
the list says, fails."""

import re
from collections.abc import Callable, Iterator
from typing import Final, cast

from redis import Redis

from gpu_workers.protocol import keys

EXPIRES: Final = "has a time to live"
# What a key's members are bounded by, if it has no time to live.
_REQUESTS: Final = "its members are requests that are open, or whose those are; goes with the last"
_WORKERS: Final = "a member for each worker until it is forgotten, ten minutes after its last call"
_POLICY: Final = "a copy of what PostgreSQL has, row by row"

_TENANT, _POOL = r"\{t:[^}]*\}", r"\{m:[^}]*\}"
# The names of gpu_workers/protocol/keys.py, in their order.
FAMILIES: Final = {
    r"\{policy\}:(version|api-keys|tenants|models|adapters)": _POLICY,
    r"\{policy\}:pools": "a member for each pool that the catalogue has or had",
    r"\{policy\}:deltas": "a stream of DELTAS_KEPT entries at most",
    r"\{policy\}:next-(api-keys|tenants|adapters)": "while a sync fills it; the next replaces it",
    r"\{policy\}:lost-at": EXPIRES,
    r"\{uses\}:(keys|digests)": "a field for each key that was used; the control plane empties it",
    r"\{uses\}:refusals": "a stream of MOST_BATCHES entries, and one more for each gateway",
    rf"{_TENANT}:(reservations|open)": _REQUESTS,
    rf"{_TENANT}:(requests|tokens|day|month):.*": EXPIRES,
    rf"{_TENANT}:balance": "a number, and one for each withdrawal that is under way; see keys.py",
    rf"{_TENANT}:(overcounted|restored)": EXPIRES,
    "tenants-with-reservations": "a member for each tenant",
    rf"{_POOL}:(queue|withdrawn|open|preemptible)": _REQUESTS,
    rf"{_POOL}:(tenants|projects|keys|requests|waiting):.*": _REQUESTS,
    rf"{_POOL}:adapters-waiting": _REQUESTS,
    rf"{_POOL}:loads:.*": EXPIRES,
    rf"{_POOL}:(loads|loaded)": "two fields, and a member, for MOST_LEVELS adapters at most",
    rf"{_POOL}:(set-aside|lost|last-frames):.*": EXPIRES,
    rf"{_POOL}:gateways": "a member for each gateway, and a day after it was missed none",
    rf"{_POOL}:scheduler": "one for each pool, of some 30 fields",
    rf"{_POOL}:flow:.*": EXPIRES,
    rf"{_POOL}:active": "a member for each flow; half a minute idle, it leaves with the next claim",
    rf"{_POOL}:(workers|names|heartbeats|free-slots|slots|paces|workers-resynced)": _WORKERS,
    rf"{_POOL}:handed-out": _WORKERS,
    rf"{_POOL}:adapter:.*": _WORKERS,
    r"\{adapter-sources\}:.+": "a field for each adapter of PostgreSQL that the pool serves",
    rf"{_POOL}:adapter-(base|pins)": "one for each pool",
    rf"{_POOL}:adapter-effects": EXPIRES,
    rf"{_POOL}:(worker|adapters|levels|inbox|running):.*": "deleted when its worker is forgotten",
    rf"{_POOL}:(dropping|dropped:.*)": "each reap takes a thousand adapters out",
    rf"{_POOL}:request:.*": "expires ten minutes after its end, which every request has",
    rf"{_POOL}:usage": "MOST_USAGE_ENTRIES of outboxes; others until newcomers are refused",
    rf"{_POOL}:(usage-withheld|dead-letters|receipts:.*)": EXPIRES,
    rf"{_POOL}:epoch": "one for each pool",
    rf"{_POOL}:identity": "one for each pool, of seven fields",
    r"\{gateways\}:known": "a member for each gateway; the control plane removes the dead ones",
    r"\{gateways\}:resynced": EXPIRES,
    r"\{g:[^}]*\}:alive": EXPIRES,
    r"\{g:[^}]*\}:frames:.*": "some MiB unread; its gateway expires it, of a dead one the sweeper",
    r"\{g:[^}]*\}:wake": "an entry for each pool; its gateway takes them out",
    r"\{ticket:.*\}": EXPIRES,
}
# Of the other server: Django's cache, Celery's broker.
OTHER_FAMILIES: Final = {
    r"cache:.*": EXPIRES,
    r"beat:successes|background:figures|fsck:result": EXPIRES,
    r"celery:_kombu\.binding.*": "a member for each queue",
    r"celery:(penstock|webhooks|adapters|slow)(\W.*)?": "its Celery worker empties it",
    r"celery:unacked.*": "tasks that a Celery worker holds, a few at once",
    r"celery:.*\.pidbox": "a worker's mailbox for remote control, which is emptied",
}
# Whose key it is has to be there.
_OF_A_REQUEST: Final = re.compile(rf"({_POOL}):request:(.+)")
_OF_A_WORKER: Final = re.compile(rf"({_POOL}):(?:worker|adapters|levels|inbox|running):(.+)")


def end_of(key: str) -> str | None:
    """Return how a key of the dispatch Redis ends; None for one of no family."""
    return next((end for family, end in FAMILIES.items() if re.fullmatch(family, key)), None)


def keys_without_end(dispatch: "Redis", other: "Redis") -> list[str]:
    """Name the keys of both servers that have no end."""
    return _without_end(dispatch, FAMILIES) + _without_end(other, OTHER_FAMILIES)


def _without_end(redis: "Redis", families: dict[str, str]) -> list[str]:
    """Name the keys that are on no list, or have no time to live although their family has."""
    found = [key.decode() for key in cast(Iterator[bytes], redis.scan_iter(count=1_000))]
    pipeline = redis.pipeline(transaction=False)
    for key in found:
        pipeline.pttl(key)
    ends = dict(zip(found, pipeline.execute(), strict=True))
    patterns = {re.compile(pattern): end for pattern, end in families.items()}
    problems = []
    for key, left_ms in ends.items():
        if left_ms != -1:
            continue
        if request := _OF_A_REQUEST.fullmatch(key):
            if not _has(redis, keys.pool_open_requests, *request.groups()):
                problems.append(f"{key}: its request is not open")
            continue
        if worker := _OF_A_WORKER.fullmatch(key):
            if not _has(redis, keys.pool_heartbeats, *worker.groups()):
                problems.append(f"{key}: its worker is forgotten")
            continue
        end = next((end for pattern, end in patterns.items() if pattern.fullmatch(key)), None)
        if end is None:
            problems.append(f"{key}: of no family that tests/support/redis_servers/keys.py knows")
        elif end is EXPIRES:
            problems.append(f"{key}: has no time to live")
    return sorted(problems)


def _has(redis: "Redis", name_of: Callable[[str], str], pool_prefix: str, member: str) -> bool:
    """Return whether a sorted set of a pool has a member."""
    return redis.zscore(name_of(pool_prefix[3:-1]), member) is not None
