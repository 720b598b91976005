"""A name is text wherever it is shown: no template, no markup, no formula of it is run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils.html import escape

from tenants.isolation.scoping import operator_scope
from tenants.models import Project, Tenant
from tests.support.accounts.invitations import invited
from tests.support.two_tenants import TwoTenants

# What each makes of 7 * 191, if anything runs it.
RUN = "1337"
NAMES = (
    "{{ 7|add:1330 }}",
    "{{7*191}}${7*191}#{7*191}<%= 7*191 %>",
    "{% debug %}{% load static %}",
    "{{ settings.SECRET_KEY }}",
    '"><img src=x onerror=alert(7*191)>',
)
SignIn = Callable[[str], Client]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("page", ["projects", "keys", "usage", "settings", ""])
def test_a_name_is_shown_as_it_was_given(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, page: str, name: str
) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=houses.acme.tenant.id).update(name=name)
        Project.objects.filter(id=houses.acme.project.id).update(name=name)
    answer = signed_in("owner").get(f"{acme_address}{page}")
    html = answer.content.decode()
    assert answer.status_code == 200
    assert RUN not in html
    assert escape(name) in html
    if escape(name) != name:
        assert name not in html


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_in_mails(
    houses: TwoTenants,
    django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[Any]],
    name: str,
) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=houses.acme.tenant.id).update(name=name)
        houses.acme.tenant.refresh_from_db()
    with django_capture_on_commit_callbacks(execute=True):
        invited(houses.acme.tenant)
    message = mail.outbox[-1]
    for text in (str(message.subject), str(message.body)):
        assert RUN not in text
    assert name[:6] in str(message.body)
