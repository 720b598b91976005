"""Usage at scale, on servers of its own: how fast it is ingested, and how fast reports are.

`make bench-usage` calls it. Prints each figure beside its bar, with --json writes them, and fails
where a bar is missed. PostgreSQL does not wait for its disk here: a batch has one commit.
"""

import argparse
import json
import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Outcome, Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry
from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import timed

if TYPE_CHECKING:
    from django.test import Client

POOL = "bench"
RECORDS_A_SECOND = 5_000
REPORT_P95_MS = 300
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
            print(f"  {records} records: {rates[-1]:.0f}/s; {_busy()}", flush=True)
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
        pipeline.xadd(keys.pool_usage(POOL), {keys.USAGE_FIELD: encode(entry)})
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
        "reports across all tenants": [(operator, "")] * 5,
    }
    return {what: _asked(what, callers) for what, callers in asked.items()}


def _asked(what: str, callers: list[tuple[Any, str]]) -> dict[str, float]:
    from django.test import Client

    milliseconds = []
    for user, prefix in callers:
        client = Client()
        client.force_login(user)
        for path, query in _questions():
            client.get("/api/v1/me")
            seconds = timed(lambda: _get(client, f"/api/v1/{prefix}{path}", query))  # noqa: B023
            milliseconds.append(seconds * 1000)
    found = {
        "reports": len(milliseconds),
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p95_ms": round(sorted(milliseconds)[math.ceil(len(milliseconds) * 0.95) - 1], 1),
        "longest_ms": round(max(milliseconds), 1),
    }
    print(f"{what}: {found}; {_busy()}", flush=True)
    return found


def _get(client: "Client", path: str, query: dict[str, str]) -> None:
    answer = client.get(path, query)
    assert answer.status_code == 200, answer.content


def _busy() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _questions() -> Iterator[tuple[str, dict[str, str]]]:
    today = datetime.now(UTC).date()
    month, quarter = (str(today - timedelta(days=days)) for days in (29, 89))
    for path in ("usage", "costs"):
        yield path, {}
        yield path, {"from": month, "group_by": "model,tier"}
        yield path, {"from": quarter, "group_by": "day,model"}
        yield path, {"from": quarter, "group_by": "project,api_key,model,adapter,tier"}
    yield "usage", {"from": quarter, "group_by": "day", "format": "csv"}


def measure_checks() -> dict[str, float]:
    """What fsck compares of usage, each once, in seconds."""
    from inference.operations.checks import generated_problems, sum_problems, token_counter_problems
    from tenants.isolation.scoping import operator_scope

    def compare(check: Callable[[], Iterator[str]]) -> None:
        with operator_scope("benchmark"):
            problems = list(check())
        assert not problems, problems[:5]

    found = {
        check.__name__: round(timed(lambda: compare(check)), 1)  # noqa: B023 - called at once
        for check in (sum_problems, generated_problems, token_counter_problems)
    }
    print(f"fsck of usage, in seconds: {found}; {_busy()}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=50_000, help="of a round of ingestion")
    options = parser.parse_args()
    at_scale.start()
    from inference.usage.seed import seed_usage

    seed = seed_usage(rows=options.rows, tenants=options.tenants, days=90)
    print(f"{seed.records} records seeded in {seed.seconds:.0f} s; {_busy()}", flush=True)
    at_scale.analyze()
    reports = measure_reports()
    ingestion = measure_ingestion(options.records)
    print(f"ingestion: {ingestion}; bar: {RECORDS_A_SECOND} records/s", flush=True)
    figures = {
        "rows": seed.records,
        "seed_seconds": round(seed.seconds),
        "reports": reports,
        "ingestion": ingestion,
        "fsck_seconds": measure_checks(),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    missed = [
        what
        for what, times in reports.items()
        if times["p95_ms"] >= REPORT_P95_MS and what != "reports across all tenants"
    ]
    if ingestion["records_a_second"] < RECORDS_A_SECOND:
        missed.append("ingestion")
    if missed:
        raise SystemExit(f"Missed: {', '.join(missed)}.")


if __name__ == "__main__":
    main()
