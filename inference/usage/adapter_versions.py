"""What the versions of an adapter did beside each other: how many requests, how well, how fast, and
what they cost. From the records, since rollups know adapters and no versions."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db.models import Aggregate, Count, FloatField, Q, Sum

from gpu_workers.protocol.messages import Outcome
from inference.models import UsageRecord

_QUANTILES: Final = (0.5, 0.95, 0.99)
_NOT_WELL: Final = (Outcome.FAILED.value, Outcome.EXPIRED.value)


class _Quantiles(Aggregate):
    """PostgreSQL's percentile_cont for all of `_QUANTILES` at once; null without a value."""

    function = "percentile_cont"
    template = f"%(function)s(array{list(_QUANTILES)}) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = ArrayField(FloatField())


@dataclass(frozen=True, kw_only=True)
class VersionUse:
    """Sums of one version; quantiles are of the requests that had a first token, or two, in ms."""

    version: int
    requests: int
    completed: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cost_nanos: int
    ttft_ms: tuple[float | None, ...]
    inter_token_ms: tuple[float | None, ...]


def compare_versions(
    tenant_id: uuid.UUID, adapter: str, *, since: datetime, until: datetime
) -> list[VersionUse]:
    """Return a row for each version of a tenant's adapter (by its public name) that a request of
    that time asked for, the newest first. Within the tenant's scope."""
    records = UsageRecord.objects.arrived_between(since, until).filter(
        tenant_id=tenant_id, adapter=adapter
    )
    rows = (
        records.order_by()
        .values("adapter_version")
        .annotate(
            requests=Count("pk"),
            completed=Count("pk", filter=Q(outcome=Outcome.COMPLETED.value)),
            failed=Count("pk", filter=Q(outcome__in=_NOT_WELL)),
            prompts=Sum("prompt_tokens"),
            completions=Sum("completion_tokens"),
            cost=Sum("cost_nanos"),
            ttft=_Quantiles("ttft_ms"),
            itl=_Quantiles("itl_p50_ms"),
        )
        .order_by("-adapter_version")
    )
    return [
        VersionUse(
            version=row["adapter_version"],
            requests=row["requests"],
            completed=row["completed"],
            failed=row["failed"],
            prompt_tokens=int(row["prompts"]),
            completion_tokens=int(row["completions"]),
            cost_nanos=int(row["cost"]),
            ttft_ms=tuple(row["ttft"] or [None] * len(_QUANTILES)),
            inter_token_ms=tuple(row["itl"] or [None] * len(_QUANTILES)),
        )
        for row in rows
    ]
