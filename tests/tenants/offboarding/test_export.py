"""Exports, of the audit log and of a tenant, as the commands write them."""

import csv
import io
import json
import stat
from pathlib import Path

import pytest

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from tenants.access.api_keys import issue_api_key
from tenants.access.invitations.inviting import invite
from tenants.audit.chain import broken
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, AuditEvent, Invitation, Membership, PersonalDetail, Project, User
from tenants.permissions import Role
from tests.support.commands import attempt, printed, refused
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        make_project("Globex", "standard")
        project = make_project("Acme", "premium")
        key = issue_api_key(project, name="Alice's laptop").record
        alice = User.objects.create_user("alice@acme.example", "correct horse battery")
        Membership.objects.create(tenant_id=project.tenant_id, user=alice, role="owner")
        invite(project.tenant, email="ada@acme.example", role=Role.VIEWER, by=None)
        UsageRecord.objects.create(
            request_id=new_request_id(), tenant_id=project.tenant_id, project=project, api_key=key,
            tier="premium", pool="demo", model="demo", api="completions", stream=True, attempt=1,
            outcome="completed", prompt_tokens=1, cached_tokens=0, completion_tokens=2,
            arrived_at="2026-01-02T00:00:00Z", finished_at="2026-01-02T00:00:01Z",
        )  # fmt: skip
        return project


def export(command: str, *arguments: str) -> str:
    with operator_scope("test"):
        seal_now()
    return printed(command, *arguments)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# The audit log ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("acme")
def test_an_exported_log_can_be_checked_without_penstock() -> None:
    exported = lines(export("export_audit"))
    assert len({line["chain"] for line in exported}) == 3
    assert list(broken(exported)) == []
    read_back = list(csv.DictReader(io.StringIO(export("export_audit", "--format", "csv"))))
    assert len(read_back) == len(exported) + 1  # the first export is on record
    assert list(broken(read_back)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("verb", "x"), ("actor_id", "x"), ("changes", "{}"), ("at", "x"), ("actor_name", "bob")],
)
@pytest.mark.usefixtures("acme")
def test_an_exported_log_that_was_changed_shows_it(field: str, value: str) -> None:
    exported = lines(export("export_audit"))
    exported[3][field] = value
    assert "as recorded" in next(broken(exported))


@pytest.mark.usefixtures("acme")
def test_a_line_that_is_missing_or_moved_shows() -> None:
    exported = lines(export("export_audit", "--tenant", "Acme"))
    assert "some are missing" in next(broken(exported[:2] + exported[3:]))
    assert list(broken([exported[1], exported[0], *exported[2:]]))
    assert list(broken(exported[2:], from_start=False)) == []


def test_an_erased_name_leaves_the_exported_log_whole(acme: Project) -> None:
    with operator_scope("test"):
        seal_now()
        PersonalDetail.objects.filter(tenant=acme.tenant_id).delete()
    text = export("export_audit")
    assert list(broken(lines(text))) == []
    assert "Alice's laptop" not in text


@pytest.mark.usefixtures("acme")
def test_a_log_is_exported_since_a_day_and_of_one_tenant() -> None:
    assert lines(export("export_audit", "--since", "2999-01-01")) == []
    assert "'yesterday'" in refused("export_audit", "--since", "yesterday")
    of_acme = lines(export("export_audit", "--tenant", "acme"))
    assert of_acme and len({line["chain"] for line in of_acme}) == 1


# A tenant ---------------------------------------------------------------------------------------


def test_all_that_is_of_a_tenant_is_exported_and_no_digest(acme: Project, tmp_path: Path) -> None:
    output = tmp_path / "acme.jsonl"
    report = json.loads(export("export_tenant", "Acme", "--yes", "--json", "--output", str(output)))
    text = output.read_text()
    records = lines(text)
    assert report["records"] == len(records)
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    kinds = {record["kind"] for record in records}
    assert kinds == {
        "tenant",
        "project",
        "api_key",
        "member",
        "invitation",
        "usage_record",
        "storage",
        "audit_event",
    }
    (member,) = (record for record in records if record["kind"] == "member")
    assert (member["email"], member["role"]) == ("alice@acme.example", "owner")
    with operator_scope("test"):
        key = ApiKey.objects.get()
        alice = User.objects.get()
        assert key.masked in text
        invited = bytes(Invitation.objects.get().digest).hex()
        for secret in (bytes(key.secret_digest).hex(), invited, alice.password, "Globex"):
            assert secret not in text
        seal_now()
        assert AuditEvent.objects.filter(verb="exported", tenant=acme.tenant_id).count() == 1


@pytest.mark.usefixtures("acme")
def test_an_export_is_confirmed_and_overwrites_nothing(tmp_path: Path) -> None:
    assert "--yes" in refused("export_tenant", "Acme")
    output = tmp_path / "acme.jsonl"
    output.write_text("precious")
    with pytest.raises(FileExistsError) as caught:
        attempt("export_tenant", "Acme", "--yes", "--output", str(output))
    assert Path(caught.value.filename) == output
    assert output.read_text() == "precious"
