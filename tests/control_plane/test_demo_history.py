"""What the demo used before its first day: usage until yesterday, and an invoice of last month that
adds up to its records."""

import io
import json
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from control_plane.demo.history import ACME_REQUESTS, GLOBEX_REQUESTS
from control_plane.demo.people import LABELS, USERS
from django.core.management import call_command
from django.db.models import Count, Sum

from gpu_workers.protocol.messages import Outcome
from inference.models import LabelUsage, UsageQuarantine, UsageRecord
from inference.usage.invoice_source import records_behind
from inference.usage.rating.price_book import PriceBook
from inference.usage.rating.rerating import adjustments
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.models import Invoice, InvoiceState
from tenants.billing.periods import last_day, month_before
from tenants.models import ApiKey, Project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


@pytest.fixture
def facts() -> dict[str, Any]:
    return seed()


def seed() -> dict[str, Any]:
    out = io.StringIO()
    call_command("seed_demo", "--history", "--json", stdout=out)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def invoice_of(facts: dict[str, Any], name: str) -> Invoice:
    key = ApiKey.objects.find(facts[f"{name}_key"])
    assert key is not None
    return Invoice.objects.get(tenant=key.tenant_id)


def test_both_tenants_have_an_invoice_of_last_month(facts: dict[str, Any]) -> None:
    today = datetime.now(UTC).date()
    for name, state in (("acme", InvoiceState.ISSUED), ("globex", InvoiceState.PAID)):
        invoice = invoice_of(facts, name)
        assert invoice.state == state
        assert invoice.period == month_before(today)
        assert invoice.payable_nanos > 0
        assert {(line.model, line.adapter) for line in invoice.lines.all() if line.is_usage} == {
            ("penstock-demo", ""),
            ("penstock-demo", "support"),
            ("sim", ""),
        }


def test_each_line_is_the_sum_of_its_records(facts: dict[str, Any]) -> None:
    assert not UsageQuarantine.objects.exists()
    for name in ("acme", "globex"):
        for line in invoice_of(facts, name).lines.all():
            if line.usage_filter:
                records = records_behind(line.usage_filter)
                assert records.aggregate(Sum("cost_nanos"))["cost_nanos__sum"] == line.amount_nanos
                assert records.count() == line.requests
    assert not list(invoice_problems())


def test_usage_reaches_until_yesterday_and_is_of_people(facts: dict[str, Any]) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = datetime.combine(month_before(today.date()), time(), UTC)
    by_day = UsageRecord.objects.values_list("arrived_at__date").annotate(Count("request_id"))
    days = dict(by_day)
    assert set(days) == {(since + timedelta(n)).date() for n in range((today - since).days)}
    assert all(0 < asked < 2 * (ACME_REQUESTS + GLOBEX_REQUESTS) for asked in days.values())
    outcomes = set(UsageRecord.objects.values_list("outcome", flat=True))
    assert outcomes == {Outcome.COMPLETED, Outcome.CANCELLED}
    users = LabelUsage.objects.filter(name="user").values_list("value", flat=True)
    assert set(users) == {*USERS["acme"], *USERS["globex"]}
    assert {tuple(each.usage_labels) for each in Project.objects.all()} == {LABELS}


def test_rating_it_again_changes_nothing(facts: dict[str, Any]) -> None:
    invoice = invoice_of(facts, "acme")
    month = invoice.period
    assert adjustments(invoice.tenant_id, month, last_day(month), PriceBook()) == []


def test_it_is_made_once_and_in_an_empty_database_only(facts: dict[str, Any]) -> None:
    before = UsageRecord.objects.count()
    seed()
    assert UsageRecord.objects.count() == before
    assert Invoice.objects.count() == 2
