"""Operators' pages of what payment providers told, by the doors that a browser uses."""

import pytest
from django.test import Client
from django.urls import reverse

from tenants.audit.log import seal_now
from tenants.billing.models import EventResolution, ProviderEvent
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.control_plane.operator_site.records import refusals, somebody_who_may

pytestmark = pytest.mark.django_db
LIST = "admin:billing_providerevent_changelist"


@pytest.fixture
def puzzling() -> ProviderEvent:
    with operator_scope("test"):
        return ProviderEvent.objects.create(
            provider="stripe", event_id="evt_1", verdict="puzzling", reason="Paid in eur.", body=""
        )


def page(action: str, event: ProviderEvent) -> str:
    return reverse(f"admin:billing_providerevent_{action}", args=[event.pk])


def resolutions() -> list[str]:
    with operator_scope("test"):
        return list(EventResolution.objects.values_list("note", flat=True))


def test_a_puzzling_event_is_resolved_with_a_note_that_is_on_record(
    operator: Client, puzzling: ProviderEvent
) -> None:
    assert "evt_1" in operator.get(reverse(LIST) + "?puzzling=unresolved").content.decode()
    assert "Paid in eur." in operator.get(page("resolve_one", puzzling)).content.decode()
    operator.post(page("resolve_one", puzzling), {"sure": "yes", "note": ""})
    assert resolutions() == []
    operator.post(page("resolve_one", puzzling), {"sure": "yes", "note": "marked as paid"})
    assert resolutions() == ["marked as paid"]
    assert "marked as paid" in operator.get(page("change", puzzling)).content.decode()
    assert "evt_1" not in operator.get(reverse(LIST) + "?puzzling=unresolved").content.decode()
    assert "evt_1" in operator.get(reverse(LIST) + "?puzzling=resolved").content.decode()
    again = operator.post(
        page("resolve_one", puzzling), {"sure": "yes", "note": "twice"}, follow=True
    )
    assert len(refusals(again)) == 1
    with operator_scope("test"):
        seal_now()
        made = AuditEvent.objects.get(record_kind="billing.EventResolution")
        assert made.actor_kind == "user"


def test_who_may_only_look_resolves_nothing(client: Client, puzzling: ProviderEvent) -> None:
    client.force_login(somebody_who_may("view_providerevent"))
    assert client.get(page("change", puzzling)).status_code == 200
    answer = client.post(page("resolve_one", puzzling), {"sure": "yes", "note": "mine"})
    assert answer.status_code == 403
    assert resolutions() == []
