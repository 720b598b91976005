"""Idempotency-Key: repeated calls that are made once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from inference.models import IdempotentCall
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project
from tenants.offboarding.closing import close_tenant
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]


def once(client: ApiClient, path: str, body: object, key: str = "first", **headers: str) -> Any:
    return client.send("POST", path, body, headers={"idempotency-key": key, **headers})


def bodies(acme: House) -> dict[str, dict[str, Any]]:
    """Every call that makes or moves something, with a body that it takes."""
    key = {"name": "new", "scopes": ["inference"], "project_id": str(acme.project.id)}
    quota = {"limit": "tokens_per_month", "value": 1, "project_id": str(acme.project.id)}
    return {
        "projects": {"name": "new"},
        "keys": key,
        "quotas": quota,
        "webhooks": {"url": "https://93.184.216.34/new"},
        f"keys/{acme.key.id}/rotate": {"overlap_seconds": 1},
        f"webhooks/{acme.endpoint.id}/rotate": {},
        f"webhooks/{acme.endpoint.id}/test": {},
    }


def test_a_repeat_makes_nothing_and_is_answered_as_the_first_was(
    as_role: AsRole, acme: House
) -> None:
    owner = as_role("owner")
    for path, body in bodies(acme).items():
        first = once(owner, path, body, key=path)
        again = once(owner, path, body, key=path)
        assert first.status_code == again.status_code < 300, (path, first.content)
        assert "Idempotency-Replayed" not in first
        assert again["Idempotency-Replayed"] == "true"
        told, retold = first.json(), again.json()
        for secret in ("key", "secret"):
            if secret in told:
                assert told.pop(secret) and retold.pop(secret) is None, path
        assert retold == told, path
    assert len(owner.get("projects", name="new").json()["data"]) == 1


def test_no_secret_is_kept(as_role: AsRole, acme: House) -> None:
    body = {"name": "kept nowhere", "project_id": str(acme.project.id)}
    key = once(as_role("owner"), "keys", body).json()["key"]
    with operator_scope("test"):
        (call,) = IdempotentCall.objects.all()
    assert key not in call.answer and key.split("-")[2] not in call.answer


def test_the_same_key_for_another_call_is_refused(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    once(owner, "projects", {"name": "one"})
    for path, body in (
        ("projects", {"name": "two"}),
        ("projects", {}),
        ("members", {"name": "one"}),
    ):
        refused = once(owner, path, body)
        assert refused.status_code == 422, path
        assert refused.json()["error"]["code"] == "idempotency_key_reused"
    assert owner.get("projects", name="two").json()["data"] == []


def test_the_order_of_fields_does_not_matter(as_role: AsRole, acme: House) -> None:
    owner, project = as_role("owner"), str(acme.project.id)
    first = once(owner, "keys", {"name": "a", "project_id": project})
    again = once(owner, "keys", {"project_id": project, "name": "a"})
    assert again.json()["id"] == first.json()["id"]


def test_a_call_that_failed_leaves_nothing(as_role: AsRole) -> None:
    owner = as_role("owner")
    assert once(owner, "projects", {"name": "acme project"}).status_code == 409
    assert once(owner, "projects", {"name": ""}).status_code == 400
    assert once(owner, "projects", {"name": "another"}).status_code == 201


def test_keys_of_different_callers_never_meet(
    as_role: AsRole, with_scopes: Callable[..., ApiClient], globex: House
) -> None:
    strangers = [
        as_role("owner"),
        as_role("admin"),
        with_scopes("admin"),
        with_scopes("admin"),
        ApiClient(globex.tenant.id, user=globex.people["owner"]),
    ]
    made = [
        once(client, "projects", {"name": f"project {number}"})
        for number, client in enumerate(strangers)
    ]
    assert {answer.status_code for answer in made} == {201}
    assert len({answer.json()["id"] for answer in made}) == len(strangers)


def test_who_may_no_longer_do_it_is_not_told_what_they_did(as_role: AsRole, acme: House) -> None:
    admin = as_role("admin")
    once(admin, "projects", {"name": "mine"})
    as_role("owner").patch(f"members/{acme.members['admin'].id}", {"role": "viewer"})
    assert once(admin, "projects", {"name": "mine"}).status_code == 403


@pytest.mark.parametrize("key", ["", " ", "two words", "x" * 256, "schlüssel", "a\tb"])
def test_a_key_that_can_be_none_is_refused(as_role: AsRole, key: str) -> None:
    refused = once(as_role("owner"), "projects", {"name": "new"}, key=key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_idempotency_key")


def test_after_a_day_the_key_is_new_again_and_what_was_kept_is_deleted(as_role: AsRole) -> None:
    owner, now = as_role("owner"), timezone.now()
    once(owner, "projects", {"name": "old"}, key="reused")
    once(owner, "projects", {"name": "older"}, key="forgotten")
    with operator_scope("test"):
        IdempotentCall.objects.update(created_at=now - timedelta(hours=24))
    assert once(owner, "projects", {"name": "new"}, key="reused").status_code == 201
    with operator_scope("test"):
        assert IdempotentCall.objects.forget_old(now) == 1
        assert [call.key for call in IdempotentCall.objects.all()] == ["reused"]


def test_what_is_kept_goes_with_the_tenant(as_role: AsRole, acme: House) -> None:
    once(as_role("owner"), "projects", {"name": "new"})
    with operator_scope("test"):
        close_tenant(acme.tenant)
        assert not IdempotentCall.objects.exists()


def test_the_header_means_nothing_where_nothing_is_made(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    header = {"idempotency-key": "first"}
    assert owner.send("GET", "projects", None, headers=header).status_code == 200
    path = f"projects/{acme.project.id}"
    for name in ("one", "two"):
        owner.send("PATCH", path, {"name": name}, headers=header)
    with operator_scope("test"):
        assert Project.objects.get(id=acme.project.id).name == "two"
        assert not IdempotentCall.objects.exists()
        assert ApiKey.objects.filter(id=acme.key.id, revoked_at=None).exists()
