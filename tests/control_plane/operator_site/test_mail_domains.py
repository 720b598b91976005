"""Operators prove mail domains where the DNS cannot."""

import pytest
from django.contrib import messages
from django.test import Client
from django.urls import reverse

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, MailDomain, Project, Tenant
from tests.control_plane.operator_site.records import somebody_who_may

pytestmark = pytest.mark.django_db


def claimed(acme: Project, domain: str = "acme.example") -> MailDomain:
    with operator_scope("test"):
        return MailDomain.objects.create(tenant=acme.tenant, domain=domain)


def prove(client: Client, domain: MailDomain) -> list[int]:
    """The levels of what the page says then."""
    chosen = {"action": "prove", "_selected_action": [str(domain.pk)]}
    answer = client.post(reverse("admin:tenants_maildomain_changelist"), chosen, follow=True)
    return [each.level for each in answer.context["messages"]]


def is_proven(domain: MailDomain) -> bool:
    with operator_scope("test"):
        return MailDomain.objects.get(pk=domain.pk).is_proven


def test_an_operator_proves_a_domain_under_their_name(operator: Client, acme: Project) -> None:
    domain = claimed(acme)
    assert prove(operator, domain) == [messages.SUCCESS]
    assert is_proven(domain)
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.select_related("personal").get(verb="domain_proven")
        assert (event.tenant_id, event.personal.actor_name) == (acme.tenant_id, "ops@example.org")


def test_a_domain_that_is_anothers_is_not_proven(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        other = Tenant.objects.create(name="Globex", tier=acme.tenant.tier)
        theirs = MailDomain.objects.create(tenant=other, domain="acme.example")
    ours = claimed(acme)
    prove(operator, theirs)
    assert prove(operator, ours) == [messages.ERROR]
    assert not is_proven(ours)


def test_whoever_may_only_look_proves_nothing(client: Client, acme: Project) -> None:
    domain = claimed(acme)
    client.force_login(somebody_who_may("view_maildomain"))
    prove(client, domain)
    assert not is_proven(domain)
