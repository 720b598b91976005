"""The end of a month as Celery's beat brings it about, by a clock that the test gives."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.beat import ScheduleEntry, Scheduler
from control_plane.celery import app

from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoices
from tenants.billing.invoicing.month_end import GRACE
from tenants.billing.models import Invoice, Seller
from tenants.billing.periods import end_of
from tenants.models import Project
from tests.support.billing.billed_usage import DEAR, OCTOBER, use

NOVEMBER = end_of(OCTOBER)


def scheduled() -> Any:
    """The entry of the month's end, as beat has read it."""
    beat = Scheduler(app, lazy=True)
    beat.setup_schedule()
    [entry] = [each for each in beat.schedule.values() if each.task == "billing.run_month_end"]
    return entry


def task_of(entry: ScheduleEntry) -> Any:
    """As a worker finds it, which has read all modules of tasks."""
    app.loader.import_default_modules()
    return app.tasks[entry.task]


def next_after(entry: ScheduleEntry, moment: datetime) -> datetime:
    last, delta, _ = entry.schedule.remaining_delta(moment)
    due: datetime = last + delta
    return due


def run(now: datetime) -> tuple[int, list[str]]:
    """What the task answers that beat would send at that time, and the states of all invoices."""
    entry = scheduled()
    answer = task_of(entry).apply(entry.args, {**entry.kwargs, "now": now}, throw=True)
    return answer.get(), sorted(Invoice.objects.values_list("state", flat=True))


def test_beat_ends_the_month_each_day_and_on_the_first_after_the_grace() -> None:
    entry, due = scheduled(), NOVEMBER
    for day in range(1, 31):
        due = next_after(entry, due)
        assert due.date().isoformat() == f"2026-11-{day:02d}"
        assert due - datetime(2026, 11, day, tzinfo=UTC) >= GRACE


def test_what_beat_sends_expires_before_it_is_sent_again() -> None:
    task = task_of(scheduled())
    assert timedelta(seconds=task.expires) < timedelta(days=1)
    assert task.time_limit > task.soft_time_limit


@pytest.mark.django_db
@pytest.mark.usefixtures("seller")
def test_the_task_drafts_after_the_grace_and_issues_after_the_review(
    acme: Project, globex: Project
) -> None:
    use(acme, prices=DEAR)
    use(globex, prices=DEAR)
    Seller.objects.update(review_days=2)
    assert run(NOVEMBER) == (0, [])
    assert run(NOVEMBER + GRACE - timedelta(seconds=1)) == (0, [])
    first = next_after(scheduled(), NOVEMBER)
    assert run(first) == (0, ["draft", "draft"])
    assert run(first + timedelta(days=1)) == (0, ["draft", "draft"])
    # Beat is a little earlier than it was on the first.
    assert run(first + timedelta(days=2, seconds=-1)) == (2, ["issued", "issued"])
    assert run(first + timedelta(days=3)) == (0, ["issued", "issued"])
    assert {invoice.issued_at for invoice in Invoice.objects.all()} == {
        first + timedelta(days=2, seconds=-1)
    }
    assert list(invoice_problems()) == []


@pytest.mark.django_db
@pytest.mark.usefixtures("seller")
def test_drafts_that_an_operator_issues_by_hand_the_task_leaves_alone(acme: Project) -> None:
    use(acme, prices=DEAR)
    Seller.objects.update(review_days=None)
    assert run(NOVEMBER + GRACE) == (0, ["draft"])
    assert run(NOVEMBER + timedelta(days=20)) == (0, ["draft"])


@pytest.mark.django_db
@pytest.mark.usefixtures("seller")
def test_a_draft_that_was_made_by_hand_waits_for_its_review_too(acme: Project) -> None:
    use(acme, prices=DEAR)
    Seller.objects.update(review_days=3)
    drafted_at = NOVEMBER + timedelta(days=4, hours=15)
    assert draft_invoices(OCTOBER, now=drafted_at) == 1
    assert run(NOVEMBER + timedelta(days=6, hours=7)) == (0, ["draft"])
    assert run(NOVEMBER + timedelta(days=7, hours=7)) == (1, ["issued"])
