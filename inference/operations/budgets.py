"""What tenants have used today and this month, and ever, from the records and the ledger, for a
Redis that has lost it.

Written before the policy snapshot, so that nothing is admitted against counters that begin at
nothing. A request that is open counts again as its gateway reserves for it again.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

import structlog
from django.db.models import F, Sum
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.charges import Charge
from inference.lua_constants import MONTH_TTL_SECONDS
from inference.models import UsageRecord
from tenants.billing.ledger.balances import charged_usage

log = structlog.get_logger(__name__)

# As long as a rebuilding that was interrupted may be begun again.
_RESTORED_TTL_SECONDS: Final = 3600

# By the key of a counter's hash and its field.
_Counters = dict[tuple[str, str], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Used:
    """What the API keys of one account have used in one day."""

    tenant_id: str
    project_id: str
    account_id: str
    is_today: bool
    charge: Charge


def rebuild_budgets(redis: Redis, now: datetime | None = None) -> int:
    """Add what is on record to the counters of day and month, and what the ledger says was ever
    spent to the balance; return for how many tenants. Runs in an `operator_scope`. Safe to repeat:
    a tenant is done once."""
    now = (now or timezone.now()).astimezone(UTC)
    counters: dict[str, _Counters] = defaultdict(lambda: defaultdict(int))
    for used in _used_since(now.replace(day=1, hour=0, minute=0, second=0, microsecond=0), now):
        _add(counters[used.tenant_id], used, now)
    for tenant_id, nanos in charged_usage().items():
        _raise_spend(redis, str(tenant_id), nanos)
    restored = sum(_write(redis, tenant_id, each) for tenant_id, each in counters.items())
    if restored:
        log.warning("budgets_rebuilt", tenants=restored)
    return restored


def _used_since(begin: datetime, now: datetime) -> Iterator[_Used]:
    rows = (
        UsageRecord.objects.filter(arrived_at__gte=begin)
        .exclude(outcome__in=(Outcome.REFUSED, Outcome.EXPIRED))
        .order_by()
        .annotate(day=TruncDate("arrived_at", tzinfo=UTC))
        .annotate(account_id=Coalesce("api_key__budget_key_id", "api_key_id"))
        .values("tenant_id", "project_id", "account_id", "day")
        .annotate(tokens=Sum(F("prompt_tokens") + F("completion_tokens")), nanos=Sum("cost_nanos"))
    )
    for row in rows.iterator(chunk_size=2000):
        yield _Used(
            tenant_id=str(row["tenant_id"]),
            project_id=str(row["project_id"]),
            account_id=str(row["account_id"]),
            is_today=row["day"] == now.date(),
            charge=Charge(tokens=int(row["tokens"]), nanos=int(row["nanos"])),
        )


def _add(counters: _Counters, used: _Used, now: datetime) -> None:
    month = keys.tenant_month(used.tenant_id, now.year * 100 + now.month)
    day = keys.tenant_day(used.tenant_id, int(now.timestamp()) // 86_400)
    for owner in (f"key:{used.account_id}", f"project:{used.project_id}", "tenant"):
        counters[month, f"{owner}:tokens"] += used.charge.tokens
        counters[month, f"{owner}:nanos"] += used.charge.nanos
        if used.is_today:
            counters[day, owner] += used.charge.tokens
            counters[day, f"{owner}:nanos"] += used.charge.nanos


def _raise_spend(redis: Redis, tenant_id: str, nanos: int) -> None:
    """Raise spend as `penstock_raise_spend` does, which a Redis that has just lost everything may
    not have."""
    balance = keys.tenant_balance(tenant_id)
    settled = cast(bytes | None, redis.hget(balance, "settled"))
    if int(settled or 0) < nanos:
        redis.hset(balance, "settled", str(nanos))


def _write(redis: Redis, tenant_id: str, counters: _Counters) -> bool:
    """Write all of a tenant's counters or none. False: they were written before."""
    mark = keys.tenant_restored(tenant_id)
    if redis.exists(mark):
        return False
    with redis.pipeline(transaction=True) as pipeline:
        for (key, field), amount in counters.items():
            pipeline.hincrby(key, field, amount)
        for key in {key for key, _ in counters}:
            pipeline.expire(key, MONTH_TTL_SECONDS)
        pipeline.set(mark, "1", ex=_RESTORED_TTL_SECONDS)
        pipeline.execute()
    return True
