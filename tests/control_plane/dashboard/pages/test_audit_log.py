"""The audit log as pages: filters, one event, the file."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from control_plane.dashboard.pages.organisation import audit_log

from tenants.access.projects import add_project
from tenants.audit.log import seal_now
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, PersonalDetail, Project
from tenants.webhooks.endpoints import change_endpoint
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
SCRIPT = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("https://evil.example","x")'


def make_project(houses: TwoTenants, name: str, role: str = "admin") -> Project:
    user = houses.acme.people[role]
    with operator_scope("test"), audit_actor(user.as_actor(), "198.51.100.7"):
        project = add_project(houses.acme.tenant, name=name)
        seal_now()
        return project


def event_of(record: Any) -> AuditEvent:
    with operator_scope("test"):
        return AuditEvent.objects.filter(record_id=str(record.pk)).latest("sequence")


def content_of(answer: Any) -> bytes:
    """All of a file, which comes in parts."""

    async def parts() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(parts)()


def rows(answer: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content_of(answer).decode())))


@pytest.mark.parametrize("page", ["audit", "audit/export.csv"])
@pytest.mark.parametrize("role", ["developer", "billing", "viewer"])
def test_only_owners_and_admins_read_it(
    page: str, role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in(role).get(f"{acme_address}{page}")
    assert answer.status_code == 403
    assert [str(able) for able in answer.context["able"]] == ["owner", "admin"]


def test_an_event_says_who_did_what_and_from_where(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    project = make_project(houses, "web")
    row = signed_in("owner").get(f"{acme_address}audit").context["rows"][0]
    assert (row.who, row.address) == ("admin@acme.example", "198.51.100.7")
    assert (row.action, row.record_kind, row.record) == ("created", "project", "web")
    one = signed_in("owner").get(f"{acme_address}audit/{event_of(project).id}")
    changed = {change.field: change.after for change in one.context["row"].changes}
    assert changed["name"] == "web"


def test_a_change_shows_before_and_after_and_no_secret(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        change_endpoint(
            houses.acme.endpoint, url="https://93.184.216.34/t0psecret", event_types=["balance.low"]
        )
        seal_now()
    event = event_of(houses.acme.endpoint)
    answer = signed_in("owner").get(f"{acme_address}audit/{event.id}")
    changes = {change.field: change for change in answer.context["row"].changes}
    assert (changes["event types"].before, changes["event types"].after) == ("", '["balance.low"]')
    assert changes["url"].note and not changes["url"].after
    assert "t0psecret" not in answer.content.decode()
    listed = signed_in("owner").get(f"{acme_address}audit")
    (row,) = (each for each in listed.context["rows"] if each.event.id == event.id)
    assert 'event types: none → ["balance.low"]' in row.summary and "url" in row.summary
    assert "t0psecret" not in listed.content.decode()


def test_filters_narrow_the_list_and_stand_in_the_address(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    project = make_project(houses, "web")
    client, address = signed_in("owner"), f"{acme_address}audit"
    admin, owner = houses.acme.people["admin"], houses.acme.people["owner"]

    def found(**chosen: object) -> list[str]:
        answer = client.get(address, {name: str(value) for name, value in chosen.items()})
        assert answer.context["filters"].errors == {}
        return [str(row.event.record_id) for row in answer.context["rows"]]

    today = datetime.now(UTC).date()
    assert found(actor=admin.id) == [str(project.id)]
    assert found(actor=owner.id) == []
    assert found(record=project.id) == [str(project.id)]
    assert str(project.id) in found(kind="tenants.Project", verb="created")
    assert str(project.id) not in found(kind="tenants.ApiKey")
    assert found(verb="closed") == []
    assert str(project.id) in found(since=today, until=today)
    assert found(until=today - timedelta(days=1)) == []
    assert found(since=today + timedelta(days=1)) == []


@pytest.mark.parametrize(
    ("chosen", "wrong"),
    [
        ({"verb": "exploded"}, "verb"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-02-30"}, "until"),
        ({"since": "2026-02-02", "until": "2026-02-01"}, "until"),
        ({"record": "a\x00b"}, "record"),
        ({"record": "x" * 201}, "record"),
    ],
)
def test_a_filter_that_makes_no_sense_is_said_and_no_file_is_made_of_it(
    chosen: dict[str, str], wrong: str, signed_in: SignIn, acme_address: str
) -> None:
    client = signed_in("owner")
    answer = client.get(f"{acme_address}audit", chosen)
    assert answer.status_code == 200
    assert list(answer.context["filters"].errors) == [wrong]
    file = client.get(f"{acme_address}audit/export.csv", chosen)
    assert (file.status_code, file["Location"].split("?")[0]) == (302, f"{acme_address}audit")


@pytest.mark.parametrize("name", ["actor", "kind", "record"])
def test_what_a_link_names_is_text_whatever_it_is(
    name: str, signed_in: SignIn, acme_address: str
) -> None:
    for value in (SCRIPT, '" autofocus onfocus="alert(1)', "' OR 1=1 --"):
        answer = signed_in("owner").get(f"{acme_address}audit", {name: value})
        assert answer.status_code == 200
        assert answer.context["rows"] == []
        html = answer.content.decode()
        assert SCRIPT not in html and 'onfocus="' not in html


def test_names_and_values_of_events_are_text(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    project = make_project(houses, SCRIPT)
    for page in ("audit", f"audit/{event_of(project).id}"):
        html = signed_in("owner").get(f"{acme_address}{page}").content.decode()
        assert SCRIPT not in html and "&lt;script&gt;" in html


def test_the_file_holds_what_is_filtered_and_no_formula(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    project = make_project(houses, FORMULA)
    client = signed_in("admin")
    answer = client.get(f"{acme_address}audit/export.csv", {"kind": "tenants.Project"})
    assert answer["Cache-Control"] == "no-store"
    assert answer["Content-Disposition"].startswith("attachment")
    found = rows(answer)
    assert {row["record_kind"] for row in found} == {"tenants.Project"}
    newest = found[0]
    assert newest["record_id"] == str(project.id)
    assert newest["record"] == f"'{FORMULA}"
    assert json.loads(newest["changes"])["name"] == [None, FORMULA]
    assert not [cell for row in found for cell in row.values() if cell.startswith(("=", "@"))]
    assert CANARY not in str(found)


def test_the_file_is_whole_however_many_parts_it_comes_in(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        make_project(houses, f"p{number}")
    monkeypatch.setattr(audit_log, "EVENTS_AT_ONCE", 3)
    found = rows(signed_in("admin").get(f"{acme_address}audit/export.csv"))
    sequences = [int(row["sequence"]) for row in found]
    assert sequences == list(range(sequences[0], 0, -1))


def test_an_export_is_in_the_log_itself(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    content_of(signed_in("admin").get(f"{acme_address}audit/export.csv"))
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.filter(tenant=houses.acme.tenant).latest("sequence")
    assert (event.verb, event.actor_id) == ("exported", str(houses.acme.people["admin"].id))


def test_a_file_that_would_be_too_long_is_refused_in_words(
    signed_in: SignIn, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "MOST_EVENTS", 3)
    answer = signed_in("admin").get(f"{acme_address}audit/export.csv", follow=True)
    assert answer.redirect_chain[0][0].startswith(f"{acme_address}audit")
    assert [message.level_tag for message in answer.context["messages"]] == ["error"]


def test_who_was_erased_stays_erased(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    project = make_project(houses, "web")
    event = event_of(project)
    with operator_scope("test"):
        PersonalDetail.objects.filter(event=event).delete()
    answer = signed_in("owner").get(f"{acme_address}audit/{event.id}")
    assert answer.status_code == 200
    assert (answer.context["row"].address, answer.context["row"].record) == ("", "")
    notes = {change.field: change.note for change in answer.context["row"].changes}
    assert notes["name"]


def test_a_suspended_tenants_log_is_read_and_exported(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client = signed_in("owner")
    assert client.get(f"{acme_address}audit").status_code == 200
    assert rows(client.get(f"{acme_address}audit/export.csv"))
