"""The end of a month at scale, on servers of its own: each tenant's invoice drafted and issued from
ten million usage records, and what its lines trace to.

`make bench-month-end` calls it. Prints each figure beside its bar, with --json writes them, and
fails where the bar is missed or a line is not the sum of its records.
"""

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import busy, timed
from tests.benchmarks.targets import bars

SECONDS = 120
# The month's usage is dated so that the newest month that is over holds all of it.
_NOW = datetime.now(UTC)
_MONTH_END = _NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
_TRACED = 50


def measure_month_end() -> dict[str, Any]:
    """Drafts and issues as the scheduler does, then again, which must find nothing to do."""
    from django.db.models import Sum

    from tenants.billing.invoicing.drafts import draft_invoices, last_month
    from tenants.billing.invoicing.month_end import MonthEnd, run_month_end
    from tenants.billing.models import Invoice, InvoiceLine
    from tenants.isolation.scoping import operator_scope

    period = last_month(_NOW)
    draft_seconds = timed(lambda: draft_invoices(period))
    print(f"drafts: {draft_seconds:.1f} s; {busy()}", flush=True)
    issue_seconds = timed(run_month_end)
    print(f"issue: {issue_seconds:.1f} s; {busy()}", flush=True)
    assert run_month_end() == MonthEnd()
    with operator_scope("benchmark"):
        sums = Invoice.objects.aggregate(charges=Sum("charges_nanos"))
        return {
            "invoices": Invoice.objects.exclude(state="draft").count(),
            "lines": InvoiceLine.objects.count(),
            "charges_nanos": sums["charges"],
            "draft_seconds": round(draft_seconds, 1),
            "issue_seconds": round(issue_seconds, 1),
            "seconds": round(draft_seconds + issue_seconds, 1),
        }


def check_lines() -> int:
    """Some lines against their records, one by one; returns how many records those are."""
    from django.db.models import Count, Sum

    from inference.usage.invoice_source import records_behind
    from tenants.billing.models import InvoiceLine
    from tenants.isolation.scoping import operator_scope

    traced = 0
    with operator_scope("benchmark"):
        lines = list(InvoiceLine.objects.filter(kind="usage").select_related("invoice"))
        for line in random.sample(lines, min(_TRACED, len(lines))):
            assert line.usage_filter is not None
            found = records_behind(line.usage_filter).aggregate(
                nanos=Sum("cost_nanos", default=0), records=Count("request_id")
            )
            assert found == {"nanos": line.amount_nanos, "records": line.requests}, line.id
            traced += line.requests
    return traced


def measure_checks() -> float:
    from tenants.billing.invoicing.check import invoice_problems
    from tenants.isolation.scoping import operator_scope

    def check() -> None:
        with operator_scope("benchmark"):
            problems = list(invoice_problems())
        assert not problems, problems[:5]

    return round(timed(check), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--tenants", type=int, default=1_000)
    bars.add_option(parser)
    options = parser.parse_args()
    at_scale.start()
    from inference.usage.seed import seed_usage
    from tenants.billing.invoicing.sla_credits import ensure_default_steps
    from tenants.billing.models import Seller
    from tenants.isolation.scoping import operator_scope

    days = (_MONTH_END - timedelta(days=1)).day
    seed = seed_usage(rows=options.rows, tenants=options.tenants, days=days, now=_MONTH_END)
    print(f"{seed.records} records seeded in {seed.seconds:.0f} s; {busy()}", flush=True)
    with operator_scope("benchmark"):
        Seller.objects.create(name="Penstock Ltd", address="Leeds", review_days=0)
        ensure_default_steps()
    at_scale.analyze()
    figures = {"rows": seed.records, **measure_month_end()}
    figures["traced_records"] = check_lines()
    figures["fsck_invoices_seconds"] = measure_checks()
    print(f"month end: {figures}; bar: {SECONDS} s", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    bars.judge(["the month end"] if figures["seconds"] >= SECONDS else [], options)


if __name__ == "__main__":
    main()
