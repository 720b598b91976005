"""What a tenant's people should look at, as far as they may see it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenants.access.api_keys import issue_api_key
from tenants.alerts.attention import AttentionKind, needs_attention
from tenants.billing.ledger.credit import top_up
from tenants.isolation.scoping import tenant_scope
from tenants.models import ApiKey, Project, Quota, QuotaAlert
from tenants.models.tenant import BillingMode
from tenants.permissions import ROLE_PERMISSIONS, Role
from tenants.webhooks.endpoints import add_endpoint
from tenants.webhooks.models import DisabledReason, Endpoint
from tests.support.two_tenants import TwoTenants

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def seen(project: Project, role: Role = Role.OWNER) -> list[tuple[str, bool]]:
    project.tenant.refresh_from_db()
    with tenant_scope(project.tenant_id):
        found = needs_attention(project.tenant, ROLE_PERMISSIONS[role], NOON)
    return [(item.kind.value, item.is_urgent) for item in found]


def test_a_tenant_that_is_well_needs_none(acme: Project) -> None:
    assert seen(acme) == []


def test_a_suspended_one_is_told_first(acme: Project) -> None:
    issue_api_key(acme)
    ApiKey.objects.update(expires_at=NOON + timedelta(days=1))
    acme.tenant.suspend()
    assert seen(acme) == [("suspended", True), ("key_expires", False)]


def test_a_prepaid_balance_is_low_at_its_threshold_and_urgent_at_nothing(acme: Project) -> None:
    acme.tenant.set_billing_mode(BillingMode.PREPAID)
    assert seen(acme) == [("balance_low", True)]
    top_up(acme.tenant_id, 5 * 10**9, reference="one")
    assert seen(acme) == [("balance_low", False)]
    assert seen(acme, Role.DEVELOPER) == []
    top_up(acme.tenant_id, 1, reference="two")
    assert seen(acme) == []


def alert(quota: Quota, **fields: Any) -> None:
    QuotaAlert.objects.create(tenant_id=quota.tenant_id, quota=quota, used=1, **fields)


def test_a_quota_counts_once_by_its_highest_threshold_in_the_period_that_runs(
    acme: Project,
) -> None:
    quota = Quota.objects.create(tenant=acme.tenant, limit="tokens_per_month", value=1)
    alert(quota, period="2026-10", percent=100)
    alert(quota, period="2026-11", percent=50)
    assert seen(acme) == []
    alert(quota, period="2026-11", percent=80)
    assert seen(acme, Role.VIEWER) == [("quota_reached", False)]
    alert(quota, period="2026-11", percent=100)
    assert seen(acme) == [("quota_reached", True)]
    Quota.objects.update(is_hard=False)
    assert seen(acme) == [("quota_reached", False)]


def test_a_webhook_that_turned_itself_off_is_named_and_one_turned_off_by_hand_is_not(
    acme: Project,
) -> None:
    add_endpoint(acme.tenant, url="https://93.184.216.34/hook")
    Endpoint.objects.update(is_enabled=False, disabled_reason=DisabledReason.BY_HAND)
    assert seen(acme) == []
    Endpoint.objects.update(disabled_reason=DisabledReason.FAILING, disabled_at=NOON)
    assert seen(acme, Role.DEVELOPER) == [("webhook_disabled", False)]
    assert seen(acme, Role.VIEWER) == []


def test_a_key_that_expires_within_a_week_is_named_and_no_other(acme: Project) -> None:
    key = issue_api_key(acme).record
    for days, expected in ((8, []), (6, [("key_expires", False)]), (-1, [])):
        ApiKey.objects.filter(id=key.id).update(expires_at=NOON + timedelta(days=days))
        assert seen(acme) == expected
    ApiKey.objects.update(expires_at=NOON + timedelta(days=1), revoked_at=NOON)
    assert seen(acme) == []


def test_an_invoice_past_its_day_is_urgent_for_whoever_may_see_invoices(
    houses: TwoTenants,
) -> None:
    acme, tenant = houses.acme, houses.acme.tenant
    late = datetime(2100, 1, 1, tzinfo=UTC)

    def kinds(role: Role) -> set[AttentionKind]:
        with tenant_scope(tenant.id):
            return {each.kind for each in needs_attention(tenant, ROLE_PERMISSIONS[role], late)}

    assert acme.invoice.due_on is not None or acme.line.invoice.due_on is not None
    assert AttentionKind.INVOICE_OVERDUE in kinds(Role.BILLING)
    assert AttentionKind.INVOICE_OVERDUE not in kinds(Role.DEVELOPER)
