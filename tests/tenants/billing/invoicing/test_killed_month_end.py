"""A process that is killed in the middle of a month's end: whatever it was at, the next run ends it
with each invoice there once, each number given once, and all usage on them."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import Sum

from gpu_workers.protocol.messages import Outcome
from inference.models import DailyUsage
from inference.operations.sum_checks import sum_problems
from inference.usage.seed import seed_usage
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.ledger import posting
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.models import Invoice, InvoiceCounter, InvoiceState, LineKind, Seller
from tenants.billing.periods import end_of
from tenants.isolation.scoping import operator_scope
from tests.support.billing.billed_usage import FREE, NOON, OCTOBER, hours_of, use_at
from tests.support.places import ROOT
from tests.support.polling import eventually_sync

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("used")]
# Drafts are made of a hundred tenants in a transaction.
TENANTS = 130
START_SECONDS = 60


@pytest.fixture
def used(seller: Seller) -> None:
    seed_usage(rows=10 * TENANTS, tenants=TENANTS, days=31, now=end_of(OCTOBER))
    some = DailyUsage.objects.order_by("tenant_id").distinct("tenant_id")
    for each in list(some.select_related("project"))[:: TENANTS // 9]:
        own = {"tier": each.tier, "model": each.model, "prices": FREE, "ttft_ms": None}
        down = hours_of(OCTOBER, range(50), 2)
        use_at(each.project, down, outcome=Outcome.FAILED, **own)


def run(action: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("invoices", action, "--month", "2026-10", "--json", stdout=out)
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def start(action: str) -> subprocess.Popen[bytes]:
    """The same as a process of its own."""
    command = [sys.executable, str(ROOT / "manage.py"), "invoices", action, "--month", "2026-10"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def standing_in_the_way(work: Callable[[], object]) -> Iterator[None]:
    """Somebody else has done `work` and not committed it; in the end it is rolled back."""
    done, leave = Event(), Event()

    def stand() -> None:
        try:
            with operator_scope("test, elsewhere"), transaction.atomic():
                work()
                done.set()
                leave.wait(2 * START_SECONDS)
                transaction.set_rollback(True)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        standing = pool.submit(stand)
        try:
            assert done.wait(START_SECONDS), standing.exception()
            yield
        finally:
            leave.set()
        standing.result()


def kill_where_it_waits(action: str, work: Callable[[], object]) -> None:
    """Kills the command at the point at which `work` of somebody else keeps it from going on."""
    with psycopg.connect(settings.ENV.database_url, autocommit=True) as watch:

        def waiting() -> list[tuple[int]]:
            return watch.execute("SELECT pid FROM pg_locks WHERE NOT granted").fetchall()

        def gone() -> bool:
            found = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
            return watch.execute(found, [backend]).fetchone() is None

        with standing_in_the_way(work):
            process = start(action)
            try:
                [(backend,)] = eventually_sync(waiting, START_SECONDS)
            finally:
                process.kill()
                process.wait()
        eventually_sync(gone, START_SECONDS)


def in_state(state: InvoiceState) -> int:
    return Invoice.objects.filter(state=state).count()


def with_usage() -> list[Any]:
    """The tenants that used something, in the order in which they are drafted."""
    used = DailyUsage.objects.filter(cost_nanos__gt=0).order_by("tenant_id")
    return list(used.values_list("tenant_id", flat=True).distinct())


def check_that_all_is_well() -> None:
    """Every tenant is invoiced once for all that it used, and the numbers run from 1 on."""
    of_all = Invoice.objects.all()
    assert sorted(of_all.values_list("tenant_id", flat=True)) == with_usage()
    sequences = list(of_all.order_by("sequence").values_list("sequence", flat=True))
    assert sequences == list(range(1, len(with_usage()) + 1))
    assert InvoiceCounter.objects.get().last == len(sequences)
    used = DailyUsage.objects.aggregate(nanos=Sum("cost_nanos"))["nanos"]
    assert of_all.aggregate(nanos=Sum("charges_nanos"))["nanos"] == used
    for problems in (invoice_problems, ledger_problems, sum_problems):
        assert list(problems()) == []


def test_killed_while_it_drafts_it_leaves_whole_invoices_or_none(seller: Seller) -> None:
    last = with_usage()[-1]

    def draft_the_last() -> None:
        Invoice.objects.create(
            tenant_id=last, seller=seller, period=OCTOBER, usage_until=NOON, buyer_name="Last"
        )

    kill_where_it_waits("draft", draft_the_last)
    drafted = in_state(InvoiceState.DRAFT)
    assert 0 < drafted < len(with_usage())
    assert not Invoice.objects.filter(lines=None).exists()
    assert run("draft")["drafted"] == len(with_usage()) - drafted
    assert run("draft")["drafted"] == 0
    assert run("issue")["issued"] == len(with_usage())
    check_that_all_is_well()


def test_killed_while_it_issues_it_loses_no_number_and_gives_none_twice() -> None:
    drafted = run("draft")["drafted"]
    with_credit = Invoice.objects.filter(lines__kind=LineKind.SLA_CREDIT).distinct()
    in_order = list(with_credit.order_by("buyer_name"))
    in_the_middle = in_order[len(in_order) // 2]

    def hold_its_ledger() -> None:
        posting.lock_balances([in_the_middle.tenant_id])

    # It has taken its number by then, and is to post its credit.
    kill_where_it_waits("issue", hold_its_ledger)
    left = in_state(InvoiceState.DRAFT)
    assert 0 < left < drafted
    in_the_middle.refresh_from_db()
    assert in_the_middle.number is None
    assert InvoiceCounter.objects.get().last == drafted - left
    assert run("issue") == {"drafts": left, "issued": left}
    assert run("issue") == {"drafts": 0, "issued": 0}
    check_that_all_is_well()


def test_killed_anywhere_it_goes_on_where_it_was() -> None:
    """Killed twice, at moments that nobody has chosen."""
    run("draft")
    for _ in range(2):
        before = in_state(InvoiceState.DRAFT)
        process = start("issue")
        try:
            eventually_sync(lambda: in_state(InvoiceState.DRAFT) < before - 10, START_SECONDS)  # noqa: B023
        finally:
            process.kill()
            process.wait()
    assert in_state(InvoiceState.DRAFT)
    run("issue")
    check_that_all_is_well()
