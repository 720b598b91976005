"""Caps of the tier, at the API: a refusal that says what, how many and what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from tenants.isolation.scoping import operator_scope
from tenants.models import Tier
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]


@pytest.mark.parametrize(
    ("path", "body", "what", "code"),
    [
        ("projects", {"name": "web"}, "projects", "too_many_projects"),
        ("keys", {"project_id": "", "name": "web"}, "API keys", "too_many_api_keys"),
        (
            "invitations",
            {"email": "a@acme.example", "role": "viewer"},
            "members",
            "too_many_members",
        ),
        ("quotas", {"limit": "tokens_per_month", "value": 5}, "quotas", "too_many_quotas"),
        ("webhooks", {"url": "https://93.184.216.34/x"}, "webhooks", "too_many_webhooks"),
    ],
    ids=["projects", "keys", "members", "quotas", "webhooks"],
)
def test_one_more_than_the_tier_allows_is_refused_and_told_why(
    as_role: AsRole,
    acme: House,
    settings: Any,
    path: str,
    body: dict[str, Any],
    what: str,
    code: str,
) -> None:
    settings.PENSTOCK_EMAIL_URL = "smtp://localhost"
    field = code.replace("too_many", "max")
    if path in ("keys", "quotas"):
        body = body | {"project_id": str(acme.project.id)}
    owner = as_role("owner")
    present = {"keys": 1, "projects": 1, "quotas": 2, "webhooks": 1, "invitations": 6}[path]
    with operator_scope("test"):
        Tier.objects.update(**{field: present})
    answer = owner.post(path, body)
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert error["code"] == code
    assert f"Tier premium allows {present} {what}" in error["message"]
    assert f"there are {present}." in error["message"]
    with operator_scope("test"):
        Tier.objects.update(**{field: present + 1})
    assert owner.post(path, body).status_code == 201


def test_the_tier_tells_its_caps(as_role: AsRole) -> None:
    tier = as_role("viewer").get("tier").json()
    assert tier["max_projects"] == 200
    assert (tier["max_api_keys"], tier["max_members"]) == (2000, 1000)
    assert (tier["max_quotas"], tier["max_webhooks"]) == (2000, 16)
    assert tier["max_websockets"] == 1000
