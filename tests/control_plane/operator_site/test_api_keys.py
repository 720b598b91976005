"""Operators make, rotate and revoke API keys; a secret is shown once."""

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.template.response import TemplateResponse
from django.test import Client
from django.urls import reverse

from inference.models.catalog import models_visible_to
from tenants import key_format
from tenants.access.api_keys import issue_api_key
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    AuditEvent,
    Project,
)
from tests.control_plane.operator_site.records import wrong_fields

pytestmark = pytest.mark.django_db
NEW_KEY = {"name": "web", "scopes": "inference"}


def test_a_new_key_is_shown_once_and_never_again(operator: Client, acme: Project) -> None:
    answer = operator.post(reverse("admin:tenants_apikey_add"), NEW_KEY | {"project": str(acme.id)})
    assert answer.status_code == 200 and "no-store" in answer["Cache-Control"]
    match = re.search(r"pk-[a-z0-9]{16}-[a-z2-7]{32}[0-9a-f]{6}", answer.content.decode())
    assert match is not None
    with operator_scope("test"):
        record = ApiKey.objects.find(match[0])
        assert record is not None and (record.project, record.name) == (acme, "web")
    for page in (
        reverse("admin:tenants_apikey_changelist"),
        reverse("admin:tenants_apikey_change", args=[record.id]),
        reverse("admin:tenants_apikey_history", args=[record.id]),
        reverse("admin:index"),
    ):
        assert match[0] not in operator.get(page, follow=True).content.decode()


@pytest.mark.usefixtures("one_of_each")
def test_a_new_key_comes_with_a_first_request_that_is_pasted(
    operator: Client, acme: Project
) -> None:
    add = reverse("admin:tenants_apikey_add")
    page = operator.post(add, NEW_KEY | {"project": str(acme.id)}).content.decode()
    secret = re.search(r"pk-[a-z0-9]{16}-[a-z2-7]{32}[0-9a-f]{6}", page)
    assert secret is not None
    command = html.unescape(page.partition('<code class="select-all">')[2].partition("</code>")[0])
    assert command.startswith("curl -N ")
    assert f"Authorization: Bearer {secret[0]}" in command
    with operator_scope("test"):
        (model,) = models_visible_to(acme.tenant_id)[:1]
    assert f'"model": "{model.name}"' in command
    none = operator.post(add, {"name": "reports", "scopes": "usage:read", "project": str(acme.id)})
    assert 'select-all">curl' not in none.content.decode()


def test_a_keys_secret_parts_cannot_be_set_by_hand(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        record = issue_api_key(acme, name="web").record
        other = Project.objects.create(tenant=acme.tenant, name="other")
    operator.post(
        reverse("admin:tenants_apikey_change", args=[record.id]),
        {
            "name": "renamed",
            "scopes": "inference",
            "public_id": "0" * 16,
            "revoked_at": "",
            "project": str(other.id),
        },
    )
    with operator_scope("test"):
        changed = ApiKey.objects.get(id=record.id)
        assert changed.name == "renamed"
        assert (changed.public_id, changed.project) == (record.public_id, acme)
    assert bytes(changed.secret_digest) == bytes(record.secret_digest)


def test_keys_are_revoked_from_the_list_and_cannot_be_deleted(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        record = issue_api_key(acme).record
    listing = reverse("admin:tenants_apikey_changelist")
    chosen = {"action": "revoke", "_selected_action": [str(record.id)]}
    question = operator.post(listing, chosen).content.decode()
    assert "1 API key of one tenant" in question and "cannot be undone" in question
    with operator_scope("test"):
        record.refresh_from_db()
        assert not record.is_revoked
    operator.post(listing, chosen | {"sure": "yes"})
    with operator_scope("test"):
        record.refresh_from_db()
    assert record.is_revoked
    assert (
        operator.post(reverse("admin:tenants_apikey_delete", args=[record.id])).status_code == 403
    )


def test_a_key_is_made_with_all_its_bounds(operator: Client, acme: Project) -> None:
    form = {
        "project": str(acme.id),
        "name": "web",
        "scopes": ["inference", "usage:read"],
        "expires_at_0": "2999-01-31",
        "expires_at_1": "12:00",
        "allowed_networks": "192.0.2.0/24\r\n\r\n 2001:db8::/32 ",
        "allowed_models": "",
    }
    assert operator.post(reverse("admin:tenants_apikey_add"), form).status_code == 200
    with operator_scope("test"):
        key = ApiKey.objects.get()
    assert key.scopes == ["inference", "usage:read"]
    assert key.expires_at == datetime(2999, 1, 31, 12, tzinfo=UTC)
    assert key.allowed_networks == ["192.0.2.0/24", "2001:db8::/32"]
    assert key.allowed_models is None
    page = operator.get(reverse("admin:tenants_apikey_change", args=[key.pk])).content.decode()
    assert "192.0.2.0/24\n2001:db8::/32" in page


@pytest.mark.parametrize(
    ("field", "value"), [("allowed_networks", "192.0.2.1/24"), ("scopes", "everything")]
)
def test_a_key_with_bad_bounds_is_not_made(
    operator: Client, acme: Project, field: str, value: str
) -> None:
    form = NEW_KEY | {"project": str(acme.id), field: value}
    assert wrong_fields(operator, reverse("admin:tenants_apikey_add"), form) == {field}
    with operator_scope("test"):
        assert not ApiKey.objects.exists()


def test_a_rotated_key_is_shown_once_and_the_old_one_for_a_while(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        issued = issue_api_key(acme, name="web")
    page = reverse("admin:tenants_apikey_rotate_one", args=[issued.record.pk])
    assert "overlap_hours" in operator.get(page).content.decode()
    answer = operator.post(page, {"sure": "yes", "overlap_hours": "24"})
    match = re.search(key_format.PATTERN, answer.content.decode())
    assert match is not None and match[0] != issued.key
    with operator_scope("test"):
        seal_now()
        record = ApiKey.objects.get()
        assert record.is_genuine(match[0])
        assert record.previous_expires_at is not None and record.rotated_at is not None
        assert record.previous_expires_at - record.rotated_at == timedelta(hours=24)
        assert AuditEvent.objects.filter(verb="rotated").count() == 1
    history = operator.get(reverse("admin:tenants_apikey_history", args=[record.pk]), follow=True)
    assert "rotated" in history.content.decode()
    assert match[0] not in history.content.decode()


def test_a_key_is_revoked_from_its_page_and_cannot_be_changed_any_more(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        record = issue_api_key(acme, name="web").record
    page = reverse("admin:tenants_apikey_revoke_one", args=[record.pk])
    assert operator.get(page).status_code == 200
    with operator_scope("test"):
        assert not ApiKey.objects.get().is_revoked
    operator.post(page, {"sure": "yes"})
    with operator_scope("test"):
        assert ApiKey.objects.get().is_revoked
    change = reverse("admin:tenants_apikey_change", args=[record.pk])
    assert operator.post(change, NEW_KEY | {"name": "renamed"}).status_code == 403
    rotate = reverse("admin:tenants_apikey_rotate_one", args=[record.pk])
    operator.post(rotate, {"sure": "yes", "overlap_hours": "24"})
    with operator_scope("test"):
        assert ApiKey.objects.get().rotated_at is None


def test_a_page_that_fails_changes_nothing(
    operator: Client, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TemplateResponse, "render", _fail)
    operator.raise_request_exception = False
    listing = reverse("admin:tenants_apikey_add")
    assert operator.post(listing, NEW_KEY | {"project": str(acme.id)}).status_code == 500
    with operator_scope("test"):
        assert not ApiKey.objects.exists()


def _fail(_: TemplateResponse) -> None:
    raise RuntimeError("on purpose")
