"""A tenant is closed while its events are under way: nobody fails, nothing is left."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import connection

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Project, Tenant, User
from tenants.offboarding.closing import close_tenant
from tenants.permissions import Role
from tenants.webhooks.deliveries import claim_due, record
from tenants.webhooks.endpoints import add_endpoint
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import Delivery, DeliveryAttempt, EmailNotice, Endpoint, Event
from tests.support.database import somebody_waits
from tests.support.polling import eventually_sync
from tests.support.projects import make_project
from tests.support.webhooks.attempts import failed, tell

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        owner = User.objects.create(email="alice@acme.example")
        Membership.objects.create(tenant=project.tenant, user=owner, role=Role.OWNER)
        add_endpoint(project.tenant, url="https://receiver.example/hook")
        tell(project)
    return project


@pytest.mark.parametrize("is_fanned_out", [False, True], ids=["fan-out", "attempt"])
def test_closing_waits_for_what_is_under_way_and_leaves_nothing_of_it(
    acme: Project, is_fanned_out: bool
) -> None:
    if is_fanned_out:
        fan_out_events()
    with ThreadPoolExecutor() as threads:
        with operator_scope("test"):
            if is_fanned_out:
                (job,) = claim_due(datetime.now(UTC))
                record(job, failed())
            else:
                fan_out_events()
            closing = threads.submit(_close, acme.tenant)
            eventually_sync(lambda: closing.done() or somebody_waits(), 30)
        assert closing.exception(timeout=30) is None
    with operator_scope("test"):
        assert Tenant.objects.get(pk=acme.tenant_id).is_closed
        for model in (Event, Endpoint, Delivery, DeliveryAttempt, EmailNotice):
            assert not model._default_manager.filter(tenant=acme.tenant_id).exists()


def _close(tenant: Tenant) -> None:
    try:
        with operator_scope("test"):
            close_tenant(tenant)
    finally:
        connection.close()
