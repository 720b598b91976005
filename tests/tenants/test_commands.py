import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from gpu_workers.protocol import keys
from tenants import key_format
from tenants.access.api_keys import issue_api_key
from tenants.models import ApiKey, PolicyChange, Project, Tenant, User
from tests.support.commands import attempt, refused, run
from tests.support.refusals import raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


def test_create_tenant_makes_the_tenant_with_its_first_project() -> None:
    facts = run("create_tenant", "Acme", "--tier", "premium")
    tenant = Tenant.objects.get(id=facts["tenant_id"])
    assert (tenant.name, tenant.tier.name) == ("Acme", "premium")
    assert [str(project.id) for project in tenant.projects.all()] == [facts["project_id"]]


@pytest.mark.parametrize(
    ("name", "code", "fields"),
    [("  ", "blank", ["name"]), ("x" * 201, "max_length", ["name"])],
)
def test_a_tenant_of_a_bad_name_is_refused(
    acme: Project, name: str, code: str, fields: list[str]
) -> None:
    with raises_invalid(code, *fields):
        attempt("create_tenant", name)
    assert Tenant.objects.count() == 1


def test_of_two_tenants_of_one_name_commands_ask_which(acme: Project) -> None:
    Tenant.objects.create(name="ACME", slug="acme-2", tier=acme.tenant.tier)
    assert "acme, acme-2" in refused("create_api_key", "Acme")
    key = ApiKey.objects.get(id=run("create_api_key", "acme")["api_key_id"])
    assert key.project == acme


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["create_tenant", "ACME"], "'ACME' exists already"),
        (["create_tenant", "New", "--tier", "gold"], "'gold'"),
        (["create_api_key", "Nobody"], "'Nobody'"),
        (["create_api_key", "Acme", "--project", "web"], "Acme .*'web'.*'default'"),
        (["revoke_api_key", "0000000000000000"], "API key"),
    ],
)
def test_what_is_not_there_is_told_in_one_sentence(
    acme: Project, arguments: list[str], named: str
) -> None:
    assert re.search(named, refused(*arguments))
    assert Tenant.objects.count() == 1


def test_create_api_key_prints_a_key_that_works(acme: Project) -> None:
    facts = run("create_api_key", "acme", "--name", "staging")
    record = ApiKey.objects.get(id=facts["api_key_id"])
    assert record.is_genuine(facts["key"])
    assert (record.project, record.name) == (acme, "staging")
    assert key_format.parse(facts["key"]).public_id == facts["public_id"]


def test_with_several_projects_one_has_to_be_named(acme: Project) -> None:
    other = Project.objects.create(tenant=acme.tenant, name="web")
    with pytest.raises(CommandError, match=r"--project"):
        call_command("create_api_key", "Acme")
    facts = run("create_api_key", str(acme.tenant_id), "--project", "web")
    assert ApiKey.objects.get(id=facts["api_key_id"]).project == other


@pytest.mark.parametrize("form", ["id", "public id", "whole key"])
def test_a_key_can_be_revoked_by_any_of_its_names(acme: Project, form: str) -> None:
    issued = issue_api_key(acme)
    names = {
        "id": str(issued.record.id),
        "public id": issued.record.public_id,
        "whole key": issued.key,
    }
    run("revoke_api_key", names[form])
    issued.record.refresh_from_db()
    assert issued.record.is_revoked


def test_rebuild_policy_writes_a_snapshot(policy_redis: Redis) -> None:
    facts = run("rebuild_policy")
    assert policy_redis.get(keys.policy_version()) == facts["version"].encode()


def test_create_operator_reads_the_password_from_a_file(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse battery\n")
    run("create_operator", "Ops@Example.org", "--password-file", str(password))
    user = User.objects.get(email="ops@example.org")
    assert user.is_staff and user.check_password("correct horse battery")


@pytest.mark.parametrize(
    ("email", "password", "code", "fields"),
    [
        ("ops@example.org", "7 letters", "password_too_short", []),
        ("ops@example.org", "", "password_too_short", []),
        ("no address", "correct horse battery", "invalid", ["email"]),
        ("alice@acme.example", "correct horse battery", "unique", ["email"]),
    ],
)
def test_create_operator_refuses_what_is_unsafe(
    tmp_path: Path, email: str, password: str, code: str, fields: list[str]
) -> None:
    User.objects.create_user("alice@acme.example")
    (tmp_path / "password").write_text(password)
    with raises_invalid(code, *fields):
        attempt("create_operator", email, "--password-file", str(tmp_path / "password"))


def test_create_operator_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        attempt("create_operator", "a@b.example", "--password-file", str(tmp_path / "none"))
    assert Path(caught.value.filename) == tmp_path / "none"


@pytest.mark.parametrize(
    ("error", "server"),
    [
        (OperationalError("no connection\nwith a second line"), "PostgreSQL"),
        (RedisConnectionError("no connection"), "dispatch Redis"),
    ],
)
def test_what_is_down_is_told_in_one_sentence(
    acme: Project, monkeypatch: pytest.MonkeyPatch, error: Exception, server: str
) -> None:
    def be_down(_impacts: object) -> None:
        raise error

    monkeypatch.setattr(PolicyChange, "note", be_down)
    told = refused("create_api_key", "Acme")
    assert server in told and told.endswith("no connection.")
