"""What operators do is on record, and shown until the names are erased."""

import pytest
from django.test import Client
from django.urls import reverse

from inference.models import DeadLetter
from tenants.access.projects import change_project
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    AuditEvent,
    PersonalDetail,
    Project,
)

pytestmark = pytest.mark.django_db


def test_what_an_operator_changes_is_recorded_with_who_and_from_where(
    operator: Client, acme: Project
) -> None:
    page = reverse("admin:tenants_project_change", args=[acme.id])
    form = {"name": "renamed", "on_saturation": "wait"}
    operator.post(page, form, REMOTE_ADDR="192.0.2.7")
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.select_related("personal").get(
            record_kind="tenants.Project", verb="changed"
        )
        assert event.changed_fields == {"name": ["default", "renamed"]}
        assert event.personal.actor_name == "ops@example.org"
        assert (event.actor_kind, event.personal.address) == ("user", "192.0.2.7")


def test_an_audit_event_shows_before_and_after_until_the_names_are_erased(
    operator: Client, acme: Project
) -> None:
    form = {"name": "renamed", "on_saturation": "wait"}
    operator.post(reverse("admin:tenants_project_change", args=[acme.id]), form)
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.get(record_kind="tenants.Project", verb="changed")
    page = reverse("admin:tenants_auditevent_change", args=[event.pk])
    shown = operator.get(page).content.decode()
    assert "renamed" in shown and "default" in shown and "ops@example.org" in shown
    with operator_scope("test"):
        seal_now()
        PersonalDetail.objects.all().delete()
    shown = operator.get(page).content.decode()
    assert "renamed" not in shown and "(erased)" in shown
    listing = reverse("admin:tenants_auditevent_changelist")
    assert operator.get(listing, {"verb": "changed", "actor_kind": "user"}).status_code == 200


def test_the_history_of_a_record_is_what_came_by_every_door(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        change_project(acme, name="by the API")
        seal_now()
    form = {"name": "by the admin", "on_saturation": "wait"}
    operator.post(reverse("admin:tenants_project_change", args=[acme.id]), form)
    with operator_scope("test"):
        seal_now()
        wanted = AuditEvent.objects.filter(record_id=str(acme.id)).count()
    history = operator.get(reverse("admin:tenants_project_history", args=[acme.id]), follow=True)
    listed = history.context["cl"].result_list
    assert {event.record_id for event in listed} == {str(acme.id)}
    assert len(listed) == wanted >= 3  # made and changed twice


@pytest.mark.usefixtures("one_of_each")
def test_what_is_not_audited_keeps_what_was_done_on_its_page(operator: Client) -> None:
    with operator_scope("test"):
        letter = DeadLetter.objects.get()
    page = reverse("admin:inference_deadletter_history", args=[letter.pk])
    assert operator.get(page).status_code == 200
