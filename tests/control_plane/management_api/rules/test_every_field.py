"""PATCH of each resource with every field of its model changes only what is documented."""

from collections.abc import Callable
from typing import Any

from django.db import models
from django.urls import URLResolver, get_resolver

from tenants.isolation.scoping import operator_scope
from tenants.models import SignOnConfiguration
from tenants.webhooks.models import BalanceAlert
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]

# What docs/management-api.md says of each, with a value that it takes.
DOCUMENTED: dict[str, dict[str, Any]] = {
    "tenant": {"name": "Acme renamed"},
    "project": {
        "name": "renamed",
        "on_saturation": "refuse",
        "smaller_model": None,
        "usage_labels": ["user"],
    },
    "key": {
        "name": "renamed",
        "scopes": ["inference"],
        "expires_at": "2099-01-01T00:00:00Z",
        "allowed_networks": ["192.0.2.0/24"],
        "allowed_models": ["public-model"],
        "allowed_adapters": ["acme-adapter"],
    },
    "member": {"role": "billing", "gets_alerts": False},
    "quota": {"value": 7, "is_hard": False, "alert_percents": [10]},
    "balance-alert": {"threshold_nanos": 7},
    "webhook": {
        "url": "https://93.184.216.34/renamed",
        "event_types": ["invoice.issued"],
        "description": "renamed",
        "is_enabled": False,
    },
    "sign-on": {
        "issuer": "https://93.184.216.34",
        "client_id": "penstock",
        "client_secret": "another",
        "role_claim": "teams",
        "roles": {"ops": "admin"},
        "default_role": "billing",
        "demands_sign_on": False,
        "demands_second_factor": False,
    },
    "adapter": {"traffic": [{"version": 2, "permille": 1000}]},
}
# Columns that follow from a documented field.
FOLLOWS = {"disabled_reason", "disabled_at", "failing_since", "encrypted_client_secret", "main"}


def records(acme: House) -> dict[str, tuple[str, models.Model]]:
    with operator_scope("test"):
        alert, _ = BalanceAlert.objects.get_or_create(tenant=acme.tenant)
        provider = SignOnConfiguration(
            tenant=acme.tenant, issuer="https://93.184.216.34", client_id="penstock"
        )
        provider.client_secret = "of acme"
        provider.save()
    adapter = acme.adapter_version.adapter
    return {
        "tenant": ("", acme.tenant),
        "project": (f"projects/{acme.project.id}", acme.project),
        "key": (f"keys/{acme.key.id}", acme.key),
        "member": (f"members/{acme.members['viewer'].id}", acme.members["viewer"]),
        "quota": (f"quotas/{acme.quota.id}", acme.quota),
        "balance-alert": ("balance-alert", alert),
        "webhook": (f"webhooks/{acme.endpoint.id}", acme.endpoint),
        "sign-on": ("sign-on", provider),
        "adapter": (f"adapters/{adapter.id}", adapter),
    }


def stored(record: models.Model) -> dict[str, Any]:
    with operator_scope("test"):
        row = type(record).objects.filter(pk=record.pk).values().get()  # type: ignore[attr-defined]
    return dict(row)


def patched_addresses() -> set[str]:
    """Every address that takes PATCH."""

    def walked(patterns: list[Any], prefix: str) -> set[str]:
        found: set[str] = set()
        for pattern in patterns:
            address = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                found |= walked(pattern.url_patterns, address)
            elif "patch" in (getattr(pattern.callback, "actions", None) or ()):
                found.add(address)
        return found

    return walked(get_resolver().url_patterns, "/")


def test_no_resource_that_can_be_changed_is_left_out() -> None:
    tenant = "/api/v1/tenants/<uuid:tenant_id>"
    assert patched_addresses() == {
        tenant,
        f"{tenant}/projects/<uuid:project_id>",
        f"{tenant}/keys/<uuid:key_id>",
        f"{tenant}/members/<uuid:member_id>",
        f"{tenant}/quotas/<uuid:quota_id>",
        f"{tenant}/balance-alert",
        f"{tenant}/webhooks/<uuid:endpoint_id>",
        f"{tenant}/sign-on",
        f"{tenant}/adapters/<uuid:adapter_id>",
    }


def test_a_field_of_the_model_that_is_not_documented_is_refused_and_changes_nothing(
    as_role: AsRole, acme: House
) -> None:
    owner = as_role("owner")
    for kind, (path, record) in records(acme).items():
        taken, before = DOCUMENTED[kind], stored(record)
        names = {name for field in record._meta.fields for name in (field.name, field.attname)}
        for name in sorted(names - taken.keys()):
            for value in (None, "other", True, 7, str(record.pk)):
                answer = owner.patch(path, {**taken, name: value})
                assert answer.status_code == 400, (kind, name, value)
                assert answer.json()["error"]["param"] == name, (kind, name)
        assert stored(record) == before, kind


def test_a_documented_field_changes_itself_alone(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    for kind, (path, record) in records(acme).items():
        for name, value in DOCUMENTED[kind].items():
            before, shown = stored(record), owner.get(path).json()
            answer = owner.patch(path, {name: value})
            assert answer.status_code == 200, (kind, name, answer.content)
            changed = {column for column, was in before.items() if stored(record)[column] != was}
            assert changed <= {name, *FOLLOWS}, (kind, name)
            told = {field for field, was in shown.items() if answer.json()[field] != was}
            assert told <= {name, *FOLLOWS}, (kind, name)
