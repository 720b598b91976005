"""fsck at scale, on servers of its own: a night's run after a day of new entries of the ledger, and
the whole run, with usage records, rollups and chains that agree.

`make bench-fsck` calls it. Each tenant posts as often in a day as makes the entries come to what
was asked for, through the ledger's own function. Prints the seconds of each check and what a
night's run would take at 100 million entries, were it to grow with them; fails where that is not
within the bar, or anything is found.
"""

import argparse
import json
import time
from datetime import date
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import busy, timed
from tests.benchmarks.targets import bars

SECONDS: Final = 600
AT_ENTRIES: Final = 100_000_000
DAYS: Final = 30
# An entry that pays, and one of each of the three models that `seed_usage` knows.
_ENTRIES_OF_A_POSTING: Final = 4
# Of a day's usage, by tenant and model, the same part to each posting.
_POST: Final = """
SELECT count(penstock_ledger_post) FROM penstock_ledger_post((
    SELECT jsonb_agg(jsonb_build_object('tenant_id', tenant_id, 'kind', 'usage',
        'reference', 'usage:' || gen_random_uuid(), 'memo', '', 'entries', entries))
    FROM (
        SELECT tenant_id,
            jsonb_build_array(jsonb_build_object('account', 'receivable', 'nanos', sum(nanos)))
            || jsonb_agg(jsonb_build_object('account', 'revenue', 'nanos', -nanos, 'model', model,
                'day', day, 'requests', requests)) AS entries
        FROM (
            SELECT tenant_id, model, day, requests / %(parts)s AS requests,
                cost_nanos / %(parts)s + (%(part)s < cost_nanos %% %(parts)s)::int AS nanos
            FROM to_be_posted WHERE day = %(day)s
        ) AS part WHERE nanos > 0 GROUP BY tenant_id
    ) AS posting
))
"""


def post_days(days: list[date], parts: int) -> None:
    """Post the usage of these days, each in so many transactions of each tenant."""
    from django.db import connection

    from tenants.isolation.scoping import operator_scope

    for day in days:
        with operator_scope("benchmark"), connection.cursor() as cursor:
            cursor.execute(
                "CREATE TEMP TABLE to_be_posted ON COMMIT DROP AS SELECT tenant_id, model, day,"
                " sum(cost_nanos)::bigint AS cost_nanos, sum(requests)::integer AS requests"
                " FROM inference_dailyusage WHERE day = %s GROUP BY tenant_id, model, day",
                [day],
            )
            for part in range(parts):
                cursor.execute(_POST, {"parts": parts, "part": part, "day": day})


def entry_count() -> int:
    from tenants.billing.models import LedgerEntry
    from tenants.isolation.scoping import operator_scope

    with operator_scope("benchmark"):
        return LedgerEntry.objects.count()


def verify_chains() -> None:
    """As the night before has."""
    from tenants.audit.checkpoints import verify_from_checkpoints
    from tenants.billing.ledger.chain import LedgerChains
    from tenants.fsck import snapshot

    assert list(verify_from_checkpoints(LedgerChains(), snapshot)) == []


def measure_checks(*, whole: bool) -> dict[str, float]:
    """Run all checks, one after the other; return the seconds of each."""
    from tenants import fsck

    seconds = {}
    every = dict(fsck.checks)
    for name in sorted(every):
        with patch.object(fsck, "checks", {name: every[name]}):
            begun = time.perf_counter()
            problems = list(fsck.run_checks(whole=whole))
            seconds[name] = round(time.perf_counter() - begun, 2)
        assert not problems, problems[:5]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="usage records")
    parser.add_argument("--tenants", type=int, default=200)
    bars.add_option(parser)
    options = parser.parse_args()
    at_scale.start()
    from inference.models import DailyUsage
    from inference.usage import seed
    from tenants.isolation.scoping import operator_scope
    from tenants.policy.writer import rebuild_policy

    # The ledger is posted to here, in many more transactions.
    with patch.object(seed, "post_usage"):
        seeded = seed.seed_usage(rows=options.rows, tenants=options.tenants, days=DAYS)
    print(f"{seeded.records} records seeded in {seeded.seconds:.0f} s; {busy()}", flush=True)
    with operator_scope("benchmark"):
        days = sorted(DailyUsage.objects.order_by().values_list("day", flat=True).distinct())
    parts = max(1, options.entries // (DAYS * options.tenants * _ENTRIES_OF_A_POSTING))
    seconds = timed(lambda: post_days(days[:-1], parts))
    before = entry_count()
    print(f"{before} entries posted in {seconds:.0f} s; {busy()}", flush=True)
    rebuild_policy()
    at_scale.analyze()
    print(f"first night: {timed(verify_chains):.1f} s for the chains; {busy()}", flush=True)
    post_days(days[-1:], parts)
    entries = entry_count()
    figures: dict[str, Any] = {"entries": entries, "entries_of_the_day": entries - before}
    for name, whole in (("nightly", False), ("whole", True)):
        checks = measure_checks(whole=whole)
        slowest = dict(sorted(checks.items(), key=lambda each: -each[1])[:6])
        figures[name] = {"seconds": round(sum(checks.values()), 1), "checks": checks}
        print(f"{name}: {figures[name]['seconds']} s, most in {slowest}; {busy()}", flush=True)
    extrapolated = round(figures["nightly"]["seconds"] * AT_ENTRIES / entries)
    figures["nightly_seconds_at_100_million"] = extrapolated
    print(
        f"{entries} entries, {entries - before} of them of the day; nightly at {AT_ENTRIES}: "
        f"{extrapolated} s; bar: {SECONDS} s",
        flush=True,
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    bars.judge(["the nightly run"] if extrapolated >= SECONDS else [], options)


if __name__ == "__main__":
    main()
