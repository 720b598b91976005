"""Holds: credit that no request can reserve while it is taken back."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from django.db import transaction
from redis.exceptions import RedisError

from gpu_workers.protocol import functions, keys
from tenants.billing.ledger.balances import spendable
from tenants.policy_redis import policy_redis


class ReservationsLost(RedisError):
    """What open requests have reserved is not in Redis yet: what is free cannot be known."""


@contextmanager
def hold(tenant_id: uuid.UUID, nanos: int) -> Iterator[int]:
    """Hold so much of the credit, or what is left of it, until it is booked and gateways know, or
    it is given up. Yields how many nano-dollars are held. Whoever takes credit away does so within
    this, under the tenant's lock: what open requests have reserved stays theirs."""
    hold_id = new_hold_id()
    held_nanos = place_hold(tenant_id, hold_id, nanos)
    try:
        yield held_nanos
    except BaseException:
        release_hold(tenant_id, hold_id)
        raise
    # After the snapshot's own hook, so that the limit is lower before this is free.
    transaction.on_commit(lambda: release_hold(tenant_id, hold_id), robust=True)


def new_hold_id() -> str:
    """Return an id that begins with its time in ms, by the clock of Redis: another process compares
    it. Raises `RedisError` where there is no Redis."""
    return f"{_now_ms()}:{uuid.uuid4()}"


def place_hold(tenant_id: uuid.UUID, hold_id: str, nanos: int) -> int:
    """Keep credit from being spent while it is taken back. Return how many nano-dollars are held:
    less where requests have reserved some. Placing the same hold again changes nothing. Needs the
    `operator_scope`; raises `ReservationsLost`, and `RedisError` where there is no Redis."""
    prefix, most = keys.tenant_prefix(str(tenant_id)), spendable([tenant_id])[tenant_id]
    with policy_redis().pipeline(transaction=False) as pipeline:
        pipeline.exists(keys.policy_version())
        pipeline.sadd(keys.tenants_with_reservations(), str(tenant_id))
        pipeline.fcall(functions.PLACE_HOLD, 1, prefix, hold_id, str(nanos), str(most))
        has_policy, _, held = pipeline.execute()
    if not has_policy:
        release_hold(tenant_id, hold_id)
        raise ReservationsLost("Redis has lost what tenants have reserved; ask again in a moment.")
    return cast(int, held)


def release_stale_holds(older_than_seconds: int = 600) -> int:
    """Release the holds of processes that died; return how many. Their bookings, if any, have
    reached the tenants' limits since."""
    redis, released = policy_redis(), 0
    oldest_ms = _now_ms() - older_than_seconds * 1000
    for tenant in cast(set[bytes], redis.smembers(keys.tenants_with_reservations())):
        tenant_id = uuid.UUID(tenant.decode())
        for field in cast(list[bytes], redis.hkeys(keys.tenant_balance(str(tenant_id)))):
            kind, _, hold_id = field.decode().partition(":")
            if kind == "withdrawal" and int(hold_id.partition(":")[0]) < oldest_ms:
                release_hold(tenant_id, hold_id)
                released += 1
    return released


def release_hold(tenant_id: uuid.UUID, hold_id: str) -> None:
    """Release a hold: the credit was booked and is out of the tenant's limit, or the booking was
    given up."""
    prefix = keys.tenant_prefix(str(tenant_id))
    policy_redis().fcall(functions.RELEASE_HOLD, 1, prefix, hold_id)


def _now_ms() -> int:
    seconds, microseconds = policy_redis().time()
    return seconds * 1000 + microseconds // 1000
