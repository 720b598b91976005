"""Tells a tenant when shares of a quota of a day or a month are used: once each in a period, by
webhooks and e-mail. Counters are admission's, in Redis: what open requests have reserved counts
with them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final, cast

import structlog

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import LimitName
from tenants.isolation.scoping import operator_scope
from tenants.models import Quota, QuotaAlert
from tenants.policy_redis import policy_redis
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish

log = structlog.get_logger(__name__)

_CHUNK: Final = 1000
_OF_A_DAY: Final = (LimitName.TOKENS_PER_DAY, LimitName.SPEND_PER_DAY)
_OF_A_MONTH: Final = (LimitName.TOKENS_PER_MONTH, LimitName.SPEND_PER_MONTH)


def raise_quota_alerts(now: datetime | None = None) -> int:
    """Record each threshold of a quota that was newly reached, and publish it; return how many."""
    now = (now or datetime.now(UTC)).astimezone(UTC)
    raised = 0
    with operator_scope("quota alerts"):
        quotas = (
            Quota.objects.filter(limit__in=(*_OF_A_DAY, *_OF_A_MONTH))
            .select_related("project", "api_key")
            .order_by()
        )
        for chunk in _chunks(quotas.iterator(chunk_size=_CHUNK)):
            raised += _raise_for(chunk, now)
    return raised


def latest_alerts(limit: int) -> list[QuotaAlert]:
    """Return the alerts of the open scope that were raised last, with what their quotas are of."""
    rows = QuotaAlert.objects.select_related("quota__project", "quota__api_key")
    return list(rows.order_by("-raised_at", "id")[:limit])


def _raise_for(quotas: Sequence[Quota], now: datetime) -> int:
    due = [
        QuotaAlert(
            tenant_id=quota.tenant_id,
            quota=quota,
            period=_period(quota, now),
            percent=percent,
            used=used,
        )
        for quota, used in zip(quotas, _used(quotas, now), strict=True)
        for percent in quota.alert_percents
        if used * 100 >= quota.value * percent
    ]
    if not due:
        return 0
    known = set(
        QuotaAlert.objects.filter(
            quota__in={alert.quota_id for alert in due}, period__in={alert.period for alert in due}
        ).values_list("quota_id", "period", "percent")
    )
    new = [alert for alert in due if (alert.quota_id, alert.period, alert.percent) not in known]
    # Another process may be at it at the same time: the table holds each of them once.
    QuotaAlert.objects.bulk_create(new, ignore_conflicts=True)
    for alert in new:
        _publish_alert(alert, now)
        log.warning(
            "quota_used_up_to",
            percent=alert.percent,
            tenant_id=str(alert.tenant_id),
            scope=alert.quota.scope,
            limit=alert.quota.limit,
            period=alert.period,
        )
    return len(new)


def _publish_alert(alert: QuotaAlert, now: datetime) -> None:
    quota = alert.quota
    is_spend = quota.limit in (LimitName.SPEND_PER_DAY, LimitName.SPEND_PER_MONTH)
    unit = "_nanos" if is_spend else "_tokens"
    publish(
        alert.tenant_id,
        EventType.QUOTA_THRESHOLD_REACHED,
        {
            "quota_id": quota.pk,
            "scope": quota.scope,
            "project": quota.project and {"id": quota.project.pk, "name": quota.project.name},
            "api_key": quota.api_key and {"id": quota.api_key.pk, "masked": quota.api_key.masked},
            "limit": quota.limit,
            "is_hard": quota.is_hard,
            "period": alert.period,
            "percent": alert.percent,
            f"quota{unit}": quota.value,
            f"used{unit}": alert.used,
        },
        key=f"{quota.pk} {alert.period} {alert.percent}",
        occurred_at=now,
    )


def _used(quotas: Sequence[Quota], now: datetime) -> list[int]:
    """Return how much of each quota is used, read in one round trip; in nano-dollars for quotas of
    spend."""
    day = int(now.timestamp()) // 86_400
    month = now.year * 100 + now.month
    with policy_redis().pipeline(transaction=False) as pipeline:
        for quota in quotas:
            tenant_id, owner = str(quota.tenant_id), _owner(quota)
            if quota.limit in _OF_A_DAY:
                field = f"{owner}:nanos" if quota.limit == LimitName.SPEND_PER_DAY else owner
                pipeline.hget(keys.tenant_day(tenant_id, day), field)
            else:
                unit = "nanos" if quota.limit == LimitName.SPEND_PER_MONTH else "tokens"
                pipeline.hget(keys.tenant_month(tenant_id, month), f"{owner}:{unit}")
        counts = cast(list[bytes | None], pipeline.execute())
    return [int(count or 0) for count in counts]


def _owner(quota: Quota) -> str:
    """Return whom the quota counts for, in the words of admission's counters."""
    if quota.api_key is not None:
        return f"key:{quota.api_key.budget_key_id or quota.api_key.pk}"
    return "tenant" if quota.project_id is None else f"project:{quota.project_id}"


def _period(quota: Quota, now: datetime) -> str:
    return f"{now:%Y-%m-%d}" if quota.limit in _OF_A_DAY else f"{now:%Y-%m}"


def _chunks(quotas: Iterator[Quota]) -> Iterator[list[Quota]]:
    while chunk := list(islice(quotas, _CHUNK)):
        yield chunk
