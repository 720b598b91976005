"""What Redis counts as spent by prepaid tenants, and what the ledger says: brought together, and
checked."""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, cast

import structlog
from django.db import transaction
from redis.exceptions import RedisError

from gpu_workers.protocol import functions, keys
from tenants.billing.ledger.balances import charged_usage, prepaid_tenants
from tenants.isolation.scoping import operator_scope
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

# What was settled reaches the ledger a moment later.
LAG_SECONDS: Final = 2.0


def raise_spend(charged: Mapping[uuid.UUID, int]) -> None:
    """Raise what Redis counts as spent to what was charged, after the commit that charged it.

    Where Redis has lost what nobody had recorded yet, it counts it again from here on, but for what
    open requests have reserved, which may be the same. Where Redis is down, `reconcile_spend` makes
    up for it."""
    try:
        with policy_redis().pipeline(transaction=False) as pipeline:
            for tenant_id, nanos in charged.items():
                prefix = keys.tenant_prefix(str(tenant_id))
                pipeline.fcall(functions.RAISE_SPEND, 1, prefix, str(nanos))
            pipeline.execute()
    except RedisError as error:
        log.warning("spend_not_reconciled", error=str(error))


def raise_after_commit(tenant_ids: Collection[uuid.UUID]) -> None:
    """Raise what Redis counts as spent by these once the transaction that charges them is
    committed, to all that is charged by then."""

    def to_all_that_is_charged() -> None:
        with operator_scope("charged usage"):
            charged = charged_usage(tenant_ids)
        raise_spend(charged)

    if tenant_ids:
        transaction.on_commit(to_all_that_is_charged, robust=True)


def _is_unknown() -> bool:
    return False


_is_all_posted: Callable[[], bool] = _is_unknown


def register_posting_check(is_all_posted: Callable[[], bool]) -> None:
    """Register who knows whether all usage of requests that have ended is in the ledger, for a
    ledger that is read afterwards. Called within an `operator_scope`."""
    global _is_all_posted
    _is_all_posted = is_all_posted


def reconcile_spend(now_ms: int | None = None) -> None:
    """Make Redis count what it could not while it was down or requests were open, and no longer
    count what it has counted twice since it was lost, or usage that was discarded. `now_ms`
    replaces Redis TIME, for tests only."""
    try:
        with operator_scope("posted usage"):
            prepaid = list(prepaid_tenants().values_list("id", flat=True))
            # In this order: what was settled by now is in the ledger if all is posted after that.
            settled = _settled(prepaid)
            is_all_posted = _is_all_posted()
            posted = charged_usage(prepaid)
        raise_spend(posted)
        if is_all_posted:
            _lower_spend(settled, posted, now_ms)
    except RedisError as error:
        log.warning("spend_not_reconciled", error=str(error))


def _settled(tenant_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    with policy_redis().pipeline(transaction=False) as pipeline:
        for tenant_id in tenant_ids:
            pipeline.hget(keys.tenant_balance(str(tenant_id)), "settled")
        answers = cast(list[bytes | None], pipeline.execute())
    return {
        tenant_id: int(settled or 0) for tenant_id, settled in zip(tenant_ids, answers, strict=True)
    }


def _lower_spend(
    settled: Mapping[uuid.UUID, int], posted: Mapping[uuid.UUID, int], now_ms: int | None
) -> None:
    """Lower what Redis counts as spent by what was counted twice. `posted` was read later and has
    all that `settled` counts, perhaps more: so at least the excess of `settled` was."""
    time_for_tests = () if now_ms is None else (str(now_ms),)
    with policy_redis().pipeline(transaction=False) as pipeline:
        for tenant_id, nanos in settled.items():
            excess = max(0, nanos - posted.get(tenant_id, 0))
            prefix = keys.tenant_prefix(str(tenant_id))
            pipeline.fcall(functions.LOWER_SPEND, 1, prefix, str(excess), *time_for_tests)
        lowered = cast(list[int], pipeline.execute())
    for tenant_id, nanos in zip(settled, lowered, strict=True):
        if nanos:
            log.warning("spend_lowered", tenant_id=str(tenant_id), nanos=nanos)


def reserved_nanos(tenant_id: uuid.UUID) -> int | None:
    """Return what open requests of a prepaid tenant have reserved of its credit; None where Redis
    cannot be asked."""
    try:
        reserved = policy_redis().hget(keys.tenant_balance(str(tenant_id)), "reserved")
    except RedisError as error:
        log.warning("reserved_not_known", error=str(error))
        return None
    return int(cast(bytes | None, reserved) or 0)


def spend_problems(lag_seconds: float = LAG_SECONDS) -> Iterator[str]:
    """Report, for fsck, prepaid tenants whose spend in Redis is not what the ledger says once
    nothing of theirs is open or on its way, which `lag_seconds` are given to."""
    prepaid = list(prepaid_tenants().values_list("id", flat=True))
    first = _spend_differences(prepaid)
    if first:
        time.sleep(lag_seconds)
        again = _spend_differences(first.keys())
        yield from (what for tenant_id, what in again.items() if first[tenant_id] == what)


def _spend_differences(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    redis, posted, found = policy_redis(), charged_usage(tenant_ids), {}
    for tenant_id in sorted(tenant_ids):
        counted = cast(dict[bytes, bytes], redis.hgetall(keys.tenant_balance(str(tenant_id))))
        settled, reserved = (int(counted.get(name, 0)) for name in (b"settled", b"reserved"))
        spent = posted.get(tenant_id, 0)
        if redis.hlen(keys.tenant_reservations(str(tenant_id))):
            continue
        if reserved:
            found[tenant_id] = (
                f"Tenant {tenant_id} has no open request, and {reserved} nano-dollars reserved."
            )
        elif settled != spent:
            found[tenant_id] = (
                f"Tenant {tenant_id} has spent {settled} nano-dollars by Redis, and {spent} by the "
                "ledger: what is too much goes within minutes, if Celery's beat runs and no usage "
                "is in quarantine."
            )
    return found
