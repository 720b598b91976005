"""What tenants keep, looked at each hour, and what that costs."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from inference.models import AdapterState, AdapterStorage, AdapterVersion
from inference.usage.rating.storage_hours import note_storage, storage_lines
from tenants.billing.models import StoragePrice
from tenants.billing.periods import last_day, month_of
from tenants.billing.pricing import price_book
from tenants.billing.pricing.storage import GIB, hour_nanos, hours_of_month
from tenants.models import Project, Tenant
from tests.support.adapters.records import a_ready_version, an_adapter
from tests.support.projects import make_project
from tests.support.refusals import raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
# A day that is to come, after whatever price is entered now.
NOON = (timezone.now() + timedelta(days=40)).replace(day=15, hour=12, minute=20)
HOURS = hours_of_month(NOON)


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


def a_price(micros: int) -> StoragePrice:
    return price_book.enter(StoragePrice(micros_per_gib_month=micros))


def kept(project: Project) -> list[tuple[int, int, int]]:
    rows = AdapterStorage.objects.filter(tenant=project.tenant).order_by("day")
    return [(row.hours, row.byte_hours, row.cost_nanos) for row in rows]


def test_each_hour_is_added_once(acme: Project) -> None:
    a_price(100_000)
    a_ready_version(an_adapter(acme.tenant), stored_bytes=GIB // 4)
    archived = a_ready_version(an_adapter(acme.tenant, "old"), stored_bytes=GIB // 2)
    AdapterVersion.objects.filter(pk=archived.pk).update(state=AdapterState.ARCHIVED)
    for minutes in (0, 15, 30, 60, 75):
        note_storage(NOON + timedelta(minutes=minutes))
    an_hour = hour_nanos(GIB * 3 // 4, 100_000, NOON)
    assert an_hour == 75_000_000 // HOURS
    assert kept(acme) == [(2, GIB * 3 // 2, 2 * an_hour)]


def test_a_whole_month_costs_what_a_month_costs(acme: Project) -> None:
    """But for a part of a nano-dollar an hour."""
    for begin in (datetime(2027, 2, 1, tzinfo=UTC), datetime(2027, 3, 1, tzinfo=UTC)):
        hours = hours_of_month(begin)
        assert hours == {2: 672, 3: 744}[begin.month]
        nanos = sum(
            hour_nanos(GIB, 123_457, begin + timedelta(hours=hour)) for hour in range(hours)
        )
        assert 123_457_000 - hours < nanos <= 123_457_000


def test_without_a_price_it_is_counted_and_costs_nothing(acme: Project) -> None:
    a_ready_version(an_adapter(acme.tenant), stored_bytes=GIB)
    assert note_storage(NOON) == 1
    assert kept(acme) == [(1, GIB, 0)]
    assert list(storage_lines([acme.tenant_id], month_of(NOON.date()), NOON.date())) == []


def test_an_hour_has_the_price_that_holds_when_it_is_looked_at(acme: Project) -> None:
    a_price(100_000)
    price_book.enter(StoragePrice(micros_per_gib_month=300_000, effective_from=NOON))
    a_ready_version(an_adapter(acme.tenant), stored_bytes=GIB)
    for hours in (-1, 0):
        note_storage(NOON + timedelta(hours=hours))
    (row,) = kept(acme)
    assert row[2] == hour_nanos(GIB, 100_000, NOON) + hour_nanos(GIB, 300_000, NOON)


def test_who_keeps_nothing_has_no_row_and_who_is_closed_pays_no_more(acme: Project) -> None:
    globex = make_project("Globex", "premium")
    an_adapter(globex.tenant)
    a_ready_version(an_adapter(acme.tenant), stored_bytes=GIB)
    Tenant.objects.filter(pk=acme.tenant_id).update(closed_at=timezone.now())
    assert note_storage(NOON) == 0
    assert kept(acme) == kept(globex) == []


def test_the_lines_of_an_invoice_are_the_sums_of_its_months(acme: Project) -> None:
    a_price(100_000)
    a_ready_version(an_adapter(acme.tenant), stored_bytes=GIB)
    month = month_of(NOON.date())
    for days in (0, 1, 40):
        note_storage(NOON + timedelta(days=days))
    (line,) = storage_lines([acme.tenant_id], month, last_day(month))
    assert (line.tenant_id, line.period) == (acme.tenant_id, month)
    assert (line.byte_hours, line.cost_nanos) == (2 * GIB, 2 * hour_nanos(GIB, 100_000, NOON))


def test_one_price_holds_at_a_time(acme: Project) -> None:
    first = a_price(100_000)
    second = a_price(200_000)
    first.refresh_from_db()
    assert first.effective_until == second.effective_from
    with raises_invalid("in_past", "effective_from"):
        price_book.enter(
            StoragePrice(micros_per_gib_month=1, effective_from=timezone.now() - timedelta(hours=1))
        )
