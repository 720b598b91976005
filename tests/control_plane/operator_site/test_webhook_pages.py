"""Operators' pages of what tenants are told: they look, switch an endpoint off and on, send a test,
and set a delivery going again."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from tenants.isolation.scoping import operator_scope
from tenants.models import User
from tenants.webhooks.models import Delivery, EmailNotice, Endpoint, Event
from tenants.webhooks.retention import delete_events
from tests.control_plane.operator_site.records import refusals
from tests.support.two_tenants import House, TwoTenants

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    house = houses.acme
    with operator_scope("test"):
        EmailNotice.objects.create(
            tenant=house.tenant,
            event=house.delivery.event,
            membership=house.members["owner"],
            problem="SMTPServerDisconnected",
        )
    return house


@pytest.mark.parametrize("model", ["endpoint", "event", "delivery", "emailnotice"])
def test_every_list_search_and_record_can_be_seen_and_none_made(
    operator: Client, acme: House, model: str
) -> None:
    listing = reverse(f"admin:webhooks_{model}_changelist")
    assert acme.tenant.name in operator.get(listing, {"q": "acme"}).content.decode()
    records = {
        "endpoint": acme.endpoint,
        "event": acme.delivery.event,
        "delivery": acme.delivery,
        "emailnotice": None,
    }
    with operator_scope("test"):
        record = records[model] or EmailNotice.objects.get()
    page = operator.get(reverse(f"admin:webhooks_{model}_change", args=[record.pk]))
    assert page.status_code == 200
    with operator_scope("test"):
        assert Endpoint.objects.get(pk=acme.endpoint.pk).secret.text not in page.content.decode()
    assert operator.get(reverse(f"admin:webhooks_{model}_add")).status_code == 403
    delete = reverse(f"admin:webhooks_{model}_delete", args=[record.pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403


def test_an_endpoint_is_switched_off_and_on_after_a_question(operator: Client, acme: House) -> None:
    for action, is_enabled in (("disable_one", False), ("enable_one", True)):
        page = reverse(f"admin:webhooks_endpoint_{action}", args=[acme.endpoint.pk])
        assert operator.get(page).status_code == 200
        with operator_scope("test"):
            assert Endpoint.objects.get(pk=acme.endpoint.pk).is_enabled is not is_enabled
        operator.post(page, {"sure": "yes"})
        with operator_scope("test"):
            assert Endpoint.objects.get(pk=acme.endpoint.pk).is_enabled is is_enabled
    with operator_scope("test"):
        missed = Delivery.objects.get(pk=acme.delivery.pk)
    assert (missed.state, missed.last_problem) == ("failed", "endpoint_disabled")


def test_a_test_is_sent_and_a_delivery_set_going_again(operator: Client, acme: House) -> None:
    test = reverse("admin:webhooks_endpoint_test_one", args=[acme.endpoint.pk])
    operator.post(test, {"sure": "yes"})
    with operator_scope("test"):
        assert Delivery.objects.filter(endpoint=acme.endpoint, state="pending").count() == 2
        Delivery.objects.update(state="failed", next_attempt_at=None)
    chosen = {"action": "redeliver", "_selected_action": [str(acme.delivery.pk)]}
    operator.post(reverse("admin:webhooks_delivery_changelist"), chosen)
    with operator_scope("test"):
        assert Delivery.objects.get(pk=acme.delivery.pk).state == "pending"
        Endpoint.objects.update(is_enabled=False, disabled_reason="by_hand")
    answer = operator.post(test, {"sure": "yes"}, follow=True)
    assert len(refusals(answer)) == 1


def test_who_may_only_look_switches_nothing(client: Client, acme: House) -> None:
    user = User.objects.create_user("looks@example.org", "correct horse battery", is_staff=True)
    seen = Permission.objects.filter(
        codename__startswith="view_", content_type__app_label="webhooks"
    )
    user.user_permissions.set(seen)
    client.force_login(user)
    assert client.get(reverse("admin:webhooks_endpoint_changelist")).status_code == 200
    for action in ("disable_one", "enable_one", "test_one"):
        page = reverse(f"admin:webhooks_endpoint_{action}", args=[acme.endpoint.pk])
        assert client.post(page, {"sure": "yes"}).status_code == 403
    client.post(
        reverse("admin:webhooks_delivery_changelist"),
        {"action": "redeliver", "_selected_action": [str(acme.delivery.pk)]},
    )
    with operator_scope("test"):
        assert Endpoint.objects.get(pk=acme.endpoint.pk).is_enabled
        assert Delivery.objects.filter(endpoint=acme.endpoint).count() == 1


def test_events_go_with_all_that_was_made_of_them(acme: House) -> None:
    with operator_scope("test"):
        delete_events(Event.objects.filter(tenant=acme.tenant))
        assert not Delivery.objects.filter(tenant=acme.tenant).exists()
        assert not EmailNotice.objects.filter(tenant=acme.tenant).exists()
