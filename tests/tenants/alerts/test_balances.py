"""A prepaid tenant is told that its balance is low: when it falls; and anew after a top-up."""

import uuid
from datetime import UTC, datetime

import pytest
from django.core.exceptions import ValidationError

from tenants.alerts.balances import raise_balance_alerts, set_threshold
from tenants.billing.ledger import credit
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.isolation.scoping import tenant_scope
from tenants.models import Project, Tenant
from tenants.models.tenant import BillingMode
from tenants.webhooks.models import BalanceAlert, Event

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
DOLLAR = 10**9


@pytest.fixture
def prepaid(acme: Project) -> Tenant:
    Tenant.objects.filter(pk=acme.tenant_id).update(billing_mode=BillingMode.PREPAID)
    return acme.tenant


def pay(tenant: Tenant, dollars: int) -> None:
    credit.top_up(tenant.pk, dollars * DOLLAR, reference=str(uuid.uuid4()))


def spend(tenant: Tenant, nanos: int) -> None:
    charge = UsageCharge(tenant_id=tenant.pk, model="m", day=NOON.date(), nanos=nanos, requests=1)
    post_usage([charge], batch_id=uuid.uuid4())


def told() -> list[int]:
    events = Event.objects.filter(type="balance.low").order_by("created_at")
    return [event.data["balance_nanos"] for event in events]


def test_a_balance_that_falls_to_the_threshold_is_told_once_and_again_after_a_top_up(
    prepaid: Tenant,
) -> None:
    pay(prepaid, 12)
    assert raise_balance_alerts(NOON) == 0
    spend(prepaid, 7 * DOLLAR - 1)
    assert raise_balance_alerts(NOON) == 0
    spend(prepaid, 1)
    assert raise_balance_alerts(NOON) == 1
    spend(prepaid, DOLLAR)
    assert raise_balance_alerts(NOON) == 0
    pay(prepaid, 2)
    assert raise_balance_alerts(NOON) == 0
    spend(prepaid, 2 * DOLLAR)
    assert raise_balance_alerts(NOON.replace(hour=13)) == 1
    assert told() == [5 * DOLLAR, 4 * DOLLAR]
    assert Event.objects.earliest("created_at").data["threshold_nanos"] == 5 * DOLLAR


def test_what_was_never_filled_and_who_owes_are_told_nothing(
    prepaid: Tenant, globex: Project
) -> None:
    spend(globex.tenant, DOLLAR)
    assert raise_balance_alerts(NOON) == 0
    assert list(BalanceAlert.objects.values_list("tenant", flat=True)) == [prepaid.pk]


def test_a_tenant_sets_its_threshold_or_none(prepaid: Tenant) -> None:
    pay(prepaid, 100)
    with tenant_scope(prepaid.pk):
        set_threshold(prepaid, 150 * DOLLAR)
    assert raise_balance_alerts(NOON) == 1
    with tenant_scope(prepaid.pk):
        assert set_threshold(prepaid, None).threshold_nanos is None
    assert raise_balance_alerts(NOON) == 0
    with tenant_scope(prepaid.pk):
        set_threshold(prepaid, 100 * DOLLAR)
    assert raise_balance_alerts(NOON.replace(hour=13)) == 1
    with pytest.raises(ValidationError), tenant_scope(prepaid.pk):
        set_threshold(prepaid, 2**63)


def test_a_balance_of_nothing_is_told_where_only_that_was_asked_for(prepaid: Tenant) -> None:
    pay(prepaid, 1)
    raise_balance_alerts(NOON)
    set_threshold(prepaid, 0)
    assert raise_balance_alerts(NOON) == 0
    spend(prepaid, DOLLAR)
    assert raise_balance_alerts(NOON.replace(hour=13)) == 1
    assert told()[-1] == 0
