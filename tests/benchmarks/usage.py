"""Usage at scale, on servers of its own: how fast it is ingested, and how fast reports are.

`make bench-usage` calls it. Prints each figure beside its bar, with --json writes them, and fails
where a bar is missed. PostgreSQL does not wait for its disk here: a batch has one commit.
"""

import argparse
import json
import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Outcome, Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry
from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import busy, timed
from tests.benchmarks.targets import bars

if TYPE_CHECKING:
    from django.test import Client

POOL = "bench"
RECORDS_A_SECOND = 5_000
REPORT_P95_MS = 300
# By project and key over all of them: no page asks that, and nothing is summed up for it.
BY_TENANT = "reports across all tenants"
ROUNDS = 5


def measure_ingestion(records: int) -> dict[str, Any]:
    """By the collectors of one process, until the last record has left the stream."""
    from inference.models import UsageQuarantine, UsageRecord
    from tenants.isolation.scoping import operator_scope
    from tenants.models import ApiKey
    from tests.support.servers import servers

    with operator_scope("benchmark"):
        keys_of_load = ApiKey.objects.filter(name__startswith="load ")
        owners = [(str(key.id), str(key.project_id), str(key.tenant_id)) for key in keys_of_load]
        before = UsageRecord.objects.count()
    rates = []
    with Redis.from_url(servers().dispatch_redis.url) as redis:
        redis.sadd(keys.known_pools(), POOL)
        for _ in range(ROUNDS):
            _fill(redis, records, owners)
            rates.append(records / timed(lambda: _collect(redis)))
            print(f"  {records} records: {rates[-1]:.0f}/s; {busy()}", flush=True)
    with operator_scope("benchmark"):
        assert UsageRecord.objects.count() == before + ROUNDS * records
        assert not UsageQuarantine.objects.exists()
    return {"records_a_second": round(statistics.median(rates)), "rounds": list(map(round, rates))}


def _collect(redis: "Redis") -> None:
    """Polls often, as the collectors end no earlier than told to."""
    from inference.usage.collector import run_collectors

    stop = threading.Event()
    collecting = threading.Thread(target=run_collectors, args=(stop,))
    collecting.start()
    while redis.xlen(keys.pool_usage(POOL)) and collecting.is_alive():
        stop.wait(0.01)
    stop.set()
    collecting.join()


def _fill(redis: "Redis", records: int, owners: list[tuple[str, str, str]]) -> None:
    """As many a millisecond, over all the tenants, as comes in at the bar."""
    from tests.support.usage_entries import proven

    weights = [1 / (rank + 1) ** 0.9 for rank in range(len(owners))]
    chosen = random.choices(owners, weights, k=records)
    first_ms = int(time.time() * 1000) - records // 5
    pipeline = redis.pipeline(transaction=False)
    for number, (api_key_id, project_id, tenant_id) in enumerate(chosen):
        at_ms = first_ms + number // 5
        ttft_ms, completion_tokens = random.randint(15, 2000), random.randint(5, 1000)
        entry = UsageEntry(
            request_id=new_request_id(at_ms),
            tenant_id=tenant_id,
            project_id=project_id,
            api_key_id=api_key_id,
            tier="standard",
            pool=POOL,
            model=random.choice(("small", "medium", "large")),
            api=Api.CHAT_COMPLETIONS,
            stream=True,
            attempt=1,
            worker_id="bench#1",
            outcome=Outcome.COMPLETED,
            finish_reason="stop",
            error_code=None,
            usage=TokenUsage(
                prompt_tokens=random.randint(50, 4000),
                cached_tokens=50,
                completion_tokens=completion_tokens,
            ),
            generated_tokens=completion_tokens,
            arrived_at_ms=at_ms,
            finished_at_ms=at_ms + ttft_ms,
            queue_ms=3,
            ttft_ms=ttft_ms,
            prices=Prices(200_000, 100_000, 600_000, 900),
            itl_p50_ms=random.uniform(5, 60),
            itl_p95_ms=70.0,
        )
        pipeline.xadd(keys.pool_usage(POOL), {stream_fields.USAGE_FIELD: encode(proven(entry))})
        if number % 1000 == 999:
            pipeline.execute()
    pipeline.execute()


def measure_reports() -> dict[str, dict[str, float]]:
    """What people of tenants and operators ask for, over months. Most usage is of the tenants whose
    names come first."""
    from tenants.isolation.scoping import operator_scope
    from tenants.models import Membership, User

    with operator_scope("benchmark"):
        members = list(
            Membership.objects.filter(tenant__name__startswith="Load ")
            .select_related("user")
            .order_by("tenant__name")
        )
    operator = User.objects.create_superuser("usage-benchmark@load.invalid")
    asked = {
        "reports of any tenant": [
            (member.user, f"tenants/{member.tenant_id}/")
            for member in random.sample(members, min(150, len(members)))
        ],
        "reports of the largest tenants": [
            (member.user, f"tenants/{member.tenant_id}/") for member in members[:20]
        ],
        BY_TENANT: [(operator, "")] * 5,
    }
    found = {what: _asked(what, callers, list(_questions())) for what, callers in asked.items()}
    over_all = list(_questions_over_all())
    found["reports over all tenants"] = _asked("reports over all", [(operator, "")] * 20, over_all)
    return found


def measure_margins() -> dict[str, dict[str, float]]:
    """Of a week and of a month."""
    from inference.usage.pools.margins import By, margins
    from tenants.isolation.scoping import operator_scope

    end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    found = {}
    for days in (7, 30):
        for by in By:
            milliseconds = []
            with operator_scope("benchmark"):
                for _ in range(ROUNDS):
                    run = partial(margins, end - timedelta(days=days), end, by)
                    milliseconds.append(timed(run) * 1000)
            found[f"margins of {days} days by {by}"] = _times(milliseconds)
    for what, times in found.items():
        print(f"{what}: {times}; {busy()}", flush=True)
    return found


def _asked(
    what: str, callers: list[tuple[Any, str]], questions: list[tuple[str, dict[str, str]]]
) -> dict[str, float]:
    from django.test import Client

    milliseconds = []
    for user, prefix in callers:
        client = Client()
        client.force_login(user)
        for path, query in questions:
            client.get("/api/v1/me")
            seconds = timed(lambda: _get(client, f"/api/v1/{prefix}{path}", query))  # noqa: B023
            milliseconds.append(seconds * 1000)
    found = _times(milliseconds)
    print(f"{what}: {found}; {busy()}", flush=True)
    return found


def _times(milliseconds: list[float]) -> dict[str, float]:
    return {
        "reports": len(milliseconds),
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p95_ms": round(sorted(milliseconds)[math.ceil(len(milliseconds) * 0.95) - 1], 1),
        "longest_ms": round(max(milliseconds), 1),
    }


def _get(client: "Client", path: str, query: dict[str, str]) -> None:
    answer = client.get(path, query)
    assert answer.status_code == 200, answer.content


def _questions() -> Iterator[tuple[str, dict[str, str]]]:
    today = datetime.now(UTC).date()
    month, quarter = (str(today - timedelta(days=days)) for days in (29, 89))
    for path in ("usage", "costs"):
        yield path, {}
        yield path, {"from": month, "group_by": "model,tier"}
        yield path, {"from": quarter, "group_by": "day,model"}
        yield path, {"from": quarter, "group_by": "project,api_key,model,adapter,tier"}
    yield "usage", {"from": quarter, "group_by": "day", "format": "csv"}


def _questions_over_all() -> Iterator[tuple[str, dict[str, str]]]:
    """What the sums of pools answer."""
    today = datetime.now(UTC).date()
    week, quarter = (str(today - timedelta(days=days)) for days in (6, 89))
    for path in ("usage", "costs"):
        yield path, {"from": quarter, "group_by": "day,model"}
        yield path, {"from": quarter, "group_by": "pool,model,tier,service_class"}
        yield path, {"from": week, "granularity": "hour", "group_by": "hour,pool"}
    yield "errors", {"from": week, "group_by": "day"}
    yield "usage", {"from": quarter, "group_by": "day", "format": "csv"}


def measure_checks() -> dict[str, float]:
    """What fsck compares of usage, each once, in seconds."""
    from inference.operations.checks import generated_problems, token_counter_problems
    from inference.operations.sum_checks import pool_sum_problems, sum_problems
    from tenants.isolation.scoping import operator_scope

    def compare(check: Callable[[], Iterator[str]]) -> None:
        with operator_scope("benchmark"):
            problems = list(check())
        assert not problems, problems[:5]

    found = {
        check.__name__: round(timed(lambda: compare(check)), 1)  # noqa: B023 - called at once
        for check in (
            sum_problems,
            pool_sum_problems,
            generated_problems,
            token_counter_problems,
        )
    }
    print(f"fsck of usage, in seconds: {found}; {busy()}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=50_000, help="of a round of ingestion")
    bars.add_option(parser)
    options = parser.parse_args()
    at_scale.start()
    from inference.usage.seed import seed_usage

    seed = seed_usage(rows=options.rows, tenants=options.tenants, days=90)
    print(f"{seed.records} records seeded in {seed.seconds:.0f} s; {busy()}", flush=True)
    at_scale.analyze()
    reports = measure_reports()
    margins = measure_margins()
    ingestion = measure_ingestion(options.records)
    print(f"ingestion: {ingestion}; bar: {RECORDS_A_SECOND} records/s", flush=True)
    figures = {
        "rows": seed.records,
        "seed_seconds": round(seed.seconds),
        "reports": reports,
        "margins": margins,
        "ingestion": ingestion,
        "fsck_seconds": measure_checks(),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    missed = [
        what
        for what, times in (reports | margins).items()
        if times["p95_ms"] >= REPORT_P95_MS and what != BY_TENANT and " 30 days " not in what
    ]
    if ingestion["records_a_second"] < RECORDS_A_SECOND:
        missed.append("ingestion")
    bars.judge(missed, options)


if __name__ == "__main__":
    main()
