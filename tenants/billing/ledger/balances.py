"""What tenants may spend, as admission is told, and what they have, as people read it.

Redis counts all that a tenant ever spent and never learns of credit by itself. Its limit is
therefore all that it may ever spend: the credit that is left and all usage that was posted. Posting
usage moves from one to the other, so the limit changes only when credit is given or taken.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import structlog
from django.db import models
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from tenants.billing.models import CREDITS, AccountName, LedgerAccount, LedgerHead
from tenants.isolation.scoping import operator_scope
from tenants.models.tenant import BillingMode, Tenant
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

# What was settled reaches the ledger a moment later.
_LAG_SECONDS: Final = 2.0
_CREDITS: Final = [name.value for name in CREDITS]


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """What a tenant has and owes by the ledger, in nano-dollars."""

    promotional_nanos: int
    sla_nanos: int
    prepaid_nanos: int
    owed_nanos: int

    @property
    def credit_nanos(self) -> int:
        return self.promotional_nanos + self.sla_nanos + self.prepaid_nanos


def balance_of(tenant_id: uuid.UUID) -> Balance:
    held = dict(
        LedgerAccount.objects.filter(tenant_id=tenant_id).values_list("name", "balance_nanos")
    )
    return Balance(
        promotional_nanos=held.get(AccountName.PROMOTIONAL_CREDIT, 0),
        sla_nanos=held.get(AccountName.SLA_CREDIT, 0),
        prepaid_nanos=held.get(AccountName.PREPAID_CREDIT, 0),
        owed_nanos=held.get(AccountName.RECEIVABLE, 0),
    )


def spendable(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """All that each may ever spend, in nano-dollars: the value of its limit `balance`."""
    if not tenant_ids:
        return {}
    nanos: defaultdict[uuid.UUID, int] = defaultdict(int)
    heads = LedgerHead.objects.filter(tenant__in=tenant_ids).values_list("tenant", "usage_nanos")
    credit = LedgerAccount.objects.filter(tenant__in=tenant_ids, name__in=_CREDITS)
    for rows in (heads, credit.values_list("tenant", "balance_nanos")):
        for tenant_id, amount in rows:
            nanos[tenant_id] += amount
    return {tenant_id: nanos[tenant_id] for tenant_id in tenant_ids}


def prepaid_among(tenant_ids: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    return list(_prepaid().filter(id__in=list(tenant_ids)).values_list("id", flat=True))


def _prepaid() -> "models.QuerySet[Tenant]":
    return Tenant.objects.filter(billing_mode=BillingMode.PREPAID).order_by()


def posted_usage(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """All usage that was ever posted for each, in nano-dollars."""
    heads = LedgerHead.objects.filter(tenant__in=tenant_ids)
    return dict(heads.values_list("tenant_id", "usage_nanos"))


def tell_redis(spent: Mapping[uuid.UUID, int]) -> None:
    """After the commit that posted usage: where Redis has lost what nobody had recorded yet, it
    counts it again from here on, but for what open requests have reserved, which may be the same. A
    Redis that is down is told later (`tell_redis_again`)."""
    try:
        with policy_redis().pipeline(transaction=False) as pipeline:
            for tenant_id, nanos in spent.items():
                prefix = keys.tenant_prefix(str(tenant_id))
                pipeline.fcall(keys.FUNCTION_RAISE_SPEND, 1, prefix, str(nanos))
            pipeline.execute()
    except RedisError as error:
        log.warning("spend_not_told", error=str(error))


def _nobody_knows() -> bool:
    return False


_is_all_posted: Callable[[], bool] = _nobody_knows


def register_posting_check(is_all_posted: Callable[[], bool]) -> None:
    """Asked within an `operator_scope` whether all usage of requests that have ended is in the
    ledger, for a ledger that is read afterwards."""
    global _is_all_posted
    _is_all_posted = is_all_posted


def tell_redis_again(now_ms: int | None = None) -> None:
    """What it could not count while it was down, or while requests were open; and to forget what it
    has counted twice since it was lost, or counts of usage that was discarded. `now_ms` replaces
    Redis TIME, for tests only."""
    try:
        with operator_scope("posted usage"):
            prepaid = list(_prepaid().values_list("id", flat=True))
            # In this order: what was settled by now is in the ledger if all is posted after that.
            settled = _settled(prepaid)
            is_all_posted = _is_all_posted()
            spent = posted_usage(prepaid)
        tell_redis(spent)
        if is_all_posted:
            _lower(settled, spent, now_ms)
    except RedisError as error:
        log.warning("spend_not_told", error=str(error))


def _settled(tenant_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    with policy_redis().pipeline(transaction=False) as pipeline:
        for tenant_id in tenant_ids:
            pipeline.hget(keys.tenant_balance(str(tenant_id)), "settled")
        answers = cast(list[bytes | None], pipeline.execute())
    return {
        tenant_id: int(settled or 0) for tenant_id, settled in zip(tenant_ids, answers, strict=True)
    }


def _lower(
    settled: Mapping[uuid.UUID, int], posted: Mapping[uuid.UUID, int], now_ms: int | None
) -> None:
    """`posted` was read later, and has all that `settled` counts and perhaps more: by so much, at
    least, something was counted twice."""
    time_for_tests = () if now_ms is None else (str(now_ms),)
    with policy_redis().pipeline(transaction=False) as pipeline:
        for tenant_id, nanos in settled.items():
            excess = max(0, nanos - posted.get(tenant_id, 0))
            prefix = keys.tenant_prefix(str(tenant_id))
            pipeline.fcall(keys.FUNCTION_LOWER_SPEND, 1, prefix, str(excess), *time_for_tests)
        lowered = cast(list[int], pipeline.execute())
    for tenant_id, nanos in zip(settled, lowered, strict=True):
        if nanos:
            log.warning("spend_lowered", tenant_id=str(tenant_id), nanos=nanos)


# Withdrawals ------------------------------------------------------------------------------------


def new_withdrawal() -> str:
    """The id of one; begins with its time in ms."""
    return f"{time.time_ns() // 1_000_000}:{uuid.uuid4()}"


def set_aside(tenant_id: uuid.UUID, withdrawal: str, nanos: int) -> int:
    """Keeps credit from being spent while it is taken back; returns how much, which is less where
    requests have reserved it. Needs the `operator_scope`; raises `RedisError`."""
    prefix, most = keys.tenant_prefix(str(tenant_id)), spendable([tenant_id])[tenant_id]
    with policy_redis().pipeline(transaction=False) as pipeline:
        pipeline.exists(keys.policy_version())
        pipeline.sadd(keys.tenants_with_reservations(), str(tenant_id))
        pipeline.fcall(keys.FUNCTION_WITHDRAW, 1, prefix, withdrawal, str(nanos), str(most))
        has_policy, _, kept = pipeline.execute()
    if not has_policy:
        let_go(tenant_id, withdrawal)
        raise RedisError("Redis has lost what tenants have reserved; ask again in a moment.")
    return cast(int, kept)


def release_withdrawals(older_than_seconds: int = 600) -> int:
    """Lets go of what a process that died kept; returns how many. Its booking, if it came to that,
    has reached the tenant's limit since."""
    redis, released = policy_redis(), 0
    oldest_ms = time.time_ns() // 1_000_000 - older_than_seconds * 1000
    for tenant in cast(set[bytes], redis.smembers(keys.tenants_with_reservations())):
        tenant_id = uuid.UUID(tenant.decode())
        for field in cast(list[bytes], redis.hkeys(keys.tenant_balance(str(tenant_id)))):
            kind, _, withdrawal = field.decode().partition(":")
            if kind == "withdrawal" and int(withdrawal.partition(":")[0]) < oldest_ms:
                let_go(tenant_id, withdrawal)
                released += 1
    return released


def let_go(tenant_id: uuid.UUID, withdrawal: str) -> None:
    """The withdrawal is booked and shows in the tenant's limit, or was given up."""
    prefix = keys.tenant_prefix(str(tenant_id))
    policy_redis().fcall(keys.FUNCTION_WITHDRAWN, 1, prefix, withdrawal)


def spend_problems() -> Iterator[str]:
    """For fsck: what Redis counts as spent by prepaid tenants is what the ledger says, once nothing
    of theirs is open or on its way."""
    prepaid = list(_prepaid().values_list("id", flat=True))
    first = _spend_differences(prepaid)
    if first:
        time.sleep(_LAG_SECONDS)
        again = _spend_differences(first.keys())
        yield from (what for tenant_id, what in again.items() if first[tenant_id] == what)


def _spend_differences(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    redis, posted, found = policy_redis(), posted_usage(tenant_ids), {}
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
