"""What the audit log tells of changes that came by the API, once they are committed."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.utils import timezone

from tests.support.api_client import ApiClient
from tests.support.two_tenants import CANARY, House

pytestmark = pytest.mark.django_db(transaction=True)
AsRole = Callable[[str], ApiClient]


def events(client: ApiClient) -> list[Any]:
    listed: list[Any] = client.get("audit").json()["data"]
    return listed


def test_a_change_is_on_record_with_who_made_it_and_from_where(
    as_role: AsRole, acme: House
) -> None:
    admin = as_role("admin")
    admin.patch(f"projects/{acme.project.id}", {"name": "renamed"})
    event = events(admin)[0]
    assert event["actor"] == {
        "kind": "user",
        "id": str(acme.people["admin"].id),
        "name": "admin@acme.example",
        "address": "127.0.0.1",
    }
    assert (event["verb"], event["record"]["id"]) == ("changed", str(acme.project.id))
    assert event["changes"]["name"] == ["acme project", "renamed"]


def test_a_key_is_on_record_as_itself_and_its_secret_nowhere(acme: House) -> None:
    key = acme.issue(scopes=["admin"], name="robot")
    client = ApiClient(acme.tenant.id, key=key)
    body = {"project_id": str(acme.project.id), "scopes": ["usage:read"]}
    made = client.post("keys", body).json()
    rotated = client.post(f"keys/{made['id']}/rotate").json()
    client.post(f"keys/{made['id']}/revoke")
    newest = events(client)[:3]
    assert [event["verb"] for event in newest] == ["revoked", "rotated", "created"]
    assert {event["actor"]["kind"] for event in newest} == {"api_key"}
    assert {event["actor"]["name"] for event in newest} == {"robot"}
    for secret in (key, made["key"], rotated["key"]):
        assert secret.split("-")[2] not in client.get("audit").content.decode()


def test_what_was_refused_is_not_on_record(as_role: AsRole) -> None:
    admin = as_role("admin")
    before = events(admin)
    admin.post("projects", {"name": "acme project"})
    admin.patch("", {"name": "x" * 300})
    assert events(admin) == before


def test_another_tenants_events_are_not_seen(as_role: AsRole, globex: House) -> None:
    answer = as_role("admin").get("audit", limit=200)
    assert answer.status_code == 200 and answer.json()["data"]
    assert CANARY not in answer.content.decode()


def test_events_are_found_by_actor_record_verb_and_time(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    before = timezone.now()
    project = owner.post("projects", {"name": "found again"}).json()

    def verbs(**query: str) -> list[str]:
        return [event["verb"] for event in owner.get("audit", **query).json()["data"]]

    assert verbs(record_id=project["id"]) == ["created"]
    mine = {"actor_id": str(acme.people["owner"].id), "since": before.isoformat()}
    assert verbs(**mine) == verbs(**mine, record_kind="tenants.Project") == ["created"]
    assert verbs(search="FOUND again") == ["created"]
    assert verbs(**mine, verb="deleted") == []
    assert verbs(**mine, actor_kind="command") == []
    assert verbs(record_id=project["id"], before=before.isoformat()) == []


def test_a_moment_of_a_filter_may_be_written_as_the_api_writes_it(as_role: AsRole) -> None:
    owner = as_role("owner")
    event = owner.get("audit", limit=1).json()["data"][0]
    since = quote(event["at"], safe="")
    (found,) = owner.get(f"{owner.tenant}/audit?since={since}&limit=1").json()["data"]
    assert found["id"] == event["id"]
