"""Refusals at scale, on servers of its own: how fast their sums are told, and how fast what
gateways tell is added.

`make bench-refusals` calls it. Prints each figure, with --json writes them, and fails where one
misses its bar. PostgreSQL does not wait for its disk here.
"""

import argparse
import json
import math
import random
import statistics
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import busy, timed
from tests.benchmarks.targets import bars

P95_MS = 300
RUNS = 40


def measure_reports() -> dict[str, dict[str, float]]:
    """Of a week, of the largest tenants and over all."""
    from django.test import Client

    from inference.refusals.reports import Dimension, refusals_by
    from tenants.isolation.scoping import operator_scope
    from tenants.models import Membership

    today = datetime.now(UTC).date()
    week = today - timedelta(days=7)
    with operator_scope("benchmark"):
        members = list(
            Membership.objects.filter(tenant__name__startswith="Load ")
            .select_related("user")
            .order_by("tenant__name")[:10]
        )

    def over_all(*dimensions: Dimension) -> None:
        with operator_scope("benchmark"):
            assert refusals_by(*dimensions, first=week, last=today, most=100)

    clients = {member.pk: Client() for member in members}
    for member in members:
        clients[member.pk].force_login(member.user)

    def of_tenant(path: str, **query: str) -> None:
        member = random.choice(members)
        client = clients[member.pk]
        answer = client.get(path.format(id=member.tenant_id), {"from": str(week), **query})
        assert answer.status_code == 200, answer.content

    api = "/api/v1/tenants/{id}/refusals"
    everything = "project,api_key,model,code,limit,scope"
    asked: dict[str, Callable[[], None]] = {
        "operators, by code": lambda: over_all(Dimension.CODE),
        "operators, by tenant": lambda: over_all(Dimension.TENANT),
        "operators, by model": lambda: over_all(Dimension.MODEL),
        "operators, by day and reason": lambda: over_all(
            Dimension.DAY, Dimension.CODE, Dimension.LIMIT, Dimension.SCOPE
        ),
        "a large tenant's days and codes": lambda: of_tenant(api),
        "by project, key, model and reason": lambda: of_tenant(api, group_by=everything),
        "by hour": lambda: of_tenant(api, granularity="hour"),
        "by all, as a file": lambda: of_tenant(api, group_by=f"day,{everything}", format="csv"),
        "the page": lambda: of_tenant("/t/{id}/refusals"),
    }
    return {what: _times(what, ask) for what, ask in asked.items()}


def _times(what: str, ask: Callable[[], None]) -> dict[str, float]:
    ask()
    milliseconds = sorted(timed(ask) * 1000 for _ in range(RUNS))
    found = {
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p95_ms": round(milliseconds[math.ceil(RUNS * 0.95) - 1], 1),
    }
    print(f"{what}: {found}; {busy()}", flush=True)
    return found


def measure_adding(batches: int = 50) -> dict[str, float]:
    """What one run of the task adds at most at once: batches of 500 rows and 500 sentences each."""
    from gpu_workers.protocol.refusals import RefusalBatch
    from inference.refusals.collecting import add_batches
    from tenants.isolation.scoping import operator_scope
    from tenants.models import ApiKey
    from tests.support.refused.on_record import notice_of, of_key

    with operator_scope("benchmark"):
        owners = list(ApiKey.objects.filter(name__startswith="load ")[:1000])
    now = datetime.now(UTC)
    told = [
        RefusalBatch(
            process_id=str(uuid.uuid4()),
            number=1,
            counts=[of_key(random.choice(owners), now, count=3) for _ in range(500)],
            notices=[notice_of(random.choice(owners), now) for _ in range(500)],
        )
        for _ in range(batches)
    ]
    seconds = timed(lambda: add_batches(told))
    found = {"rows": batches * 500, "seconds": round(seconds, 2)}
    print(f"added: {found}; {busy()}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    bars.add_option(parser)
    options = parser.parse_args()
    at_scale.start()
    from inference.models import DailyRefusals, RefusalRollup
    from inference.refusals.seed import seed_refusals
    from tenants.isolation.scoping import operator_scope

    seconds = timed(lambda: seed_refusals(rows=options.rows, tenants=options.tenants, days=90))
    with operator_scope("benchmark"):
        hours, days = RefusalRollup.objects.count(), DailyRefusals.objects.count()
    print(f"{hours} rows by hour, {days} by day, in {seconds:.0f} s; {busy()}", flush=True)
    at_scale.analyze()
    reports = measure_reports()
    figures: dict[str, Any] = {"hours": hours, "days": days, "reports": reports}
    figures["adding"] = measure_adding()
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    missed = [what for what, times in reports.items() if times["p95_ms"] >= P95_MS]
    bars.judge(missed, options)


if __name__ == "__main__":
    main()
