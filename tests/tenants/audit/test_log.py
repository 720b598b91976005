"""The audit log: what leaves a trace, that nobody takes it back, and that it shows if they do."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction
from psycopg import errors

from inference.models import Pool, PoolTenant
from tenants.access.api_keys import issue_api_key, rotate_api_key
from tenants.audit.log import broken_chains, record, seal_now
from tenants.audit.triggers import check_audit, tables_without_audit
from tenants.isolation.audit_actor import Actor, ActorKind, Verb, audit_actor, audited_as
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import (
    ApiKey,
    AuditChain,
    AuditEvent,
    Membership,
    PersonalDetail,
    Project,
    Quota,
    Tenant,
    User,
)
from tests.support.database import AUDIT_LOCKS
from tests.support.projects import make_project
from tests.support.refusals import database_refuses

pytestmark = pytest.mark.django_db
ALICE = Actor(kind=ActorKind.USER, id="7", name="alice@acme.example")


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        return make_project("Acme", "premium")


@pytest.fixture
def globex() -> Project:
    with operator_scope("test"):
        return make_project("Globex", "standard")


def newest(**of: object) -> AuditEvent:
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(**of).select_related("personal")
        return events.order_by("-at", "-sequence")[0]


def problems() -> list[str]:
    seal_now()
    return list(broken_chains())


def count(**of: object) -> int:
    with operator_scope("test"):
        seal_now()
        return AuditEvent.objects.filter(**of).count()


# What leaves a trace ----------------------------------------------------------------------------


def test_a_change_tells_who_what_when_from_where_and_from_what_to_what(acme: Project) -> None:
    with audit_actor(ALICE, "192.0.2.7"), tenant_scope(acme.tenant_id):
        Project.objects.get(id=acme.id).delete()
        quota = Quota.objects.create(tenant_id=acme.tenant_id, limit="tokens_per_day", value=5)
        quota.value = 6
        quota.save()
    event = newest(record_kind="tenants.Quota")
    assert (event.verb, event.record_id) == ("changed", str(quota.id))
    assert (event.actor_kind, event.actor_id) == ("user", "7")
    assert event.changed_fields == {"value": [5, 6]}
    assert (event.personal.actor_name, event.personal.address) == (ALICE.name, "192.0.2.7")
    assert event.personal.record_name == "tokens_per_day"
    deleted = newest(verb="deleted")
    assert deleted.record_id == str(acme.id)
    assert deleted.changed_fields["name"] == ["default", None]


def test_no_secret_is_told_only_that_it_changed(acme: Project) -> None:
    with operator_scope("command rotate_api_key"):
        issued = issue_api_key(acme, name="staging")
        key = rotate_api_key(issued.record, overlap=timedelta(hours=1))
        user = User.objects.create_user("alice@acme.example", "correct horse battery")
        user.set_password("another battery entirely")
        user.save()
        seal_now()
        told = " ".join(
            f"{event.changes} {event.personal.changes}"
            for event in AuditEvent.objects.select_related("personal")
        )
        digests = [
            issued.record.secret_digest.hex(),
            bytes(issued.record.previous_digest or b"").hex(),
        ]
    for secret in (key, key[-38:], issued.key, user.password, *digests):
        assert secret not in told
    rotated = newest(record_kind="tenants.ApiKey")
    assert rotated.changed_fields["secret_digest"] == "changed"
    assert (rotated.actor_kind, rotated.actor_id) == ("command", "rotate_api_key")
    assert newest(record_kind="tenants.User").changed_fields == {"password": "changed"}


@pytest.mark.parametrize(
    "change",
    [
        lambda acme: Project.objects.filter(id=acme.id).update(name="renamed"),
        lambda acme: Project.objects.bulk_update([_renamed(acme)], ["name"]),
        lambda acme: connection.cursor().execute("UPDATE tenants_project SET name = 'renamed'"),
    ],
    ids=["update", "bulk_update", "SQL by hand"],
)
def test_no_way_of_changing_goes_past_the_log(acme: Project, change) -> None:  # type: ignore[no-untyped-def]
    with tenant_scope(acme.tenant_id):
        change(acme)
    event = newest(tenant=acme.tenant_id)
    assert event.changed_fields == {"name": ["default", "renamed"]}
    assert event.actor_kind == "unknown"


def _renamed(project: Project) -> Project:
    project.name = "renamed"
    return project


def test_what_is_deleted_along_with_another_record_is_told_too(acme: Project) -> None:
    user = User.objects.create_user("alice@acme.example", "correct horse battery")
    with operator_scope("test"):
        Membership.objects.create(tenant_id=acme.tenant_id, user=user, role="owner")
        user.delete()
    event = newest(record_kind="tenants.Membership")
    assert event.verb == "deleted" and event.changed_fields["role"] == ["owner", None]
    assert event.tenant_id == acme.tenant_id


def test_what_machines_write_all_the_time_leaves_no_trace(acme: Project) -> None:
    with operator_scope("test"):
        issue_api_key(acme)
        seal_now()
        before = AuditEvent.objects.count()
        ApiKey.objects.update(last_used_at="2026-01-31T12:00:00Z")
        ApiKey.objects.update(name="")  # as it was
        seal_now()
        assert AuditEvent.objects.count() == before


def test_a_change_that_is_undone_leaves_no_trace_and_no_gap(acme: Project) -> None:
    with pytest.raises(RuntimeError), tenant_scope(acme.tenant_id):
        Project.objects.update(name="never")
        raise RuntimeError("on purpose")
    with tenant_scope(acme.tenant_id):
        Project.objects.update(name="then")
    with operator_scope("test"):
        assert problems() == []


def test_many_rows_at_once_are_one_event_for_each_tenant(acme: Project, globex: Project) -> None:
    with operator_scope("test"):
        ApiKey.objects.bulk_create(
            ApiKey(
                project=project,
                tenant_id=project.tenant_id,
                public_id=f"{project.tenant.name.lower():a<10.10}{number:06}",
                last_four="abcd",
                secret_digest=b"\x00" * 32,
            )
            for project in (acme, globex)
            for number in range(150)
        )
        seal_now()
        created = AuditEvent.objects.filter(record_kind="tenants.ApiKey")
        assert [event.changed_fields for event in created] == [{"rows": 150}] * 2
        ApiKey.objects.filter(project=acme).update(revoked_at="2026-01-31T12:00:00Z")
        seal_now()
        assert created.filter(tenant=acme.tenant_id, verb="changed").count() == 150
        assert problems() == []


def test_a_verb_of_its_own_stands_for_changed(acme: Project) -> None:
    with operator_scope("test"), audited_as(Verb.SUSPENDED):
        Tenant.objects.update(is_suspended=True)
    assert newest().verb == "suspended"
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=False)
    assert newest().verb == "changed"


def test_what_has_no_tenant_has_a_chain_of_its_own(acme: Project) -> None:
    with operator_scope("test"):
        Pool.objects.create(name="demo")
        PoolTenant.objects.create(pool_id="demo", tenant_id=acme.tenant_id)
    assert newest(record_kind="inference.Pool").tenant is None
    assert newest(record_kind="inference.PoolTenant").tenant_id == acme.tenant_id


def test_what_is_no_change_is_recorded_by_those_who_act(acme: Project) -> None:
    user = User.objects.create_user("alice@acme.example", "correct horse battery")
    with audit_actor(ALICE, "2001:db8::1"):
        record(Verb.SIGNED_IN, user)
    event = newest(verb="signed_in")
    assert (event.tenant, event.actor_id, event.record_id) == (None, "7", str(user.pk))
    assert event.personal.address == "2001:db8::1"
    with audit_actor(ALICE, "testclient"), tenant_scope(acme.tenant_id):
        record(Verb.EXPORTED, acme.tenant, tenant_id=acme.tenant_id, rows=3)
    event = newest(verb="exported")
    assert (event.tenant_id, event.changed_fields) == (acme.tenant_id, {"rows": 3})
    assert event.personal.address == ""


# Nobody takes it back ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tenants_auditevent SET actor_id = 'bob'",
        "DELETE FROM tenants_auditevent",
        "TRUNCATE tenants_auditevent CASCADE",
        "INSERT INTO tenants_auditevent SELECT * FROM tenants_auditevent",
        "UPDATE tenants_personaldetail SET actor_name = 'bob'",
        "TRUNCATE tenants_personaldetail",
        "UPDATE tenants_auditchain SET sequence = 1",
        "DELETE FROM tenants_auditchain",
    ],
)
@pytest.mark.parametrize("role", ["penstock_web", "penstock_operator", "penstock_owner"])
def test_nobody_changes_the_log(role: str, statement: str) -> None:
    if role == "penstock_owner" and statement.startswith(("INSERT", "UPDATE tenants_auditchain")):
        return  # the functions that write the log run as the owner
    with psycopg.connect(settings.ENV.owner_database_url) as owner:
        owner.execute(f"SET ROLE {role}")
        with pytest.raises(errors.InsufficientPrivilege):
            owner.execute(statement)
        owner.rollback()


def test_a_tenant_reads_its_own_log_and_writes_to_no_other(acme: Project, globex: Project) -> None:
    with tenant_scope(acme.tenant_id):
        seal_now()
        assert {event.tenant_id for event in AuditEvent.objects.all()} == {acme.tenant_id}
        assert {detail.tenant_id for detail in PersonalDetail.objects.all()} == {acme.tenant_id}
        for tenant in (globex.tenant_id, None):
            with (
                database_refuses(
                    errors.InsufficientPrivilege, constraint="audit_log_of_the_open_tenant"
                ),
                transaction.atomic(),
                connection.cursor() as cursor,
            ):
                cursor.execute(
                    "SELECT penstock_audit_record(%s, 'closed', '', '', '', '{}')", [tenant]
                )
        with database_refuses(errors.InsufficientPrivilege), transaction.atomic():
            PersonalDetail.objects.all().delete()
        with database_refuses(errors.InsufficientPrivilege), transaction.atomic():
            AuditChain.objects.exists()
        with (
            database_refuses(errors.InsufficientPrivilege),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT penstock_audit_append(NULL, 'closed', '', '', '', '{}', '{}')")


# It shows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forgery", "shows"),
    [
        ("UPDATE tenants_auditevent SET verb = 'closed' WHERE sequence = 3", "not as recorded"),
        ("UPDATE tenants_auditevent SET at = at + interval '1s' WHERE sequence = 3", "recorded"),
        ("UPDATE tenants_personaldetail SET actor_name = 'bob'", "its names, its address"),
        ("DELETE FROM tenants_auditevent WHERE sequence = 3", "some are missing"),
        ("DELETE FROM tenants_auditevent WHERE sequence > 3", "newest event is not number"),
        ("DELETE FROM tenants_auditevent WHERE tenant_id IS NOT NULL", "newest event is not"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_forged_log_is_found(acme: Project, forgery: str, shows: str) -> None:
    with operator_scope("test"):
        for number in range(5):
            Project.objects.create(tenant=acme.tenant, name=f"project {number}")
        assert problems() == []
    _forge(forgery)
    with operator_scope("test"):
        found = problems()
    assert found and shows in found[0]


def _forge(statement: str) -> None:
    """As the owner of the tables, who can switch triggers and row security off."""
    with psycopg.connect(settings.ENV.owner_database_url) as owner:
        for table, trigger in AUDIT_LOCKS[:2]:
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
            owner.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        if statement.startswith("DELETE"):
            owner.execute("DELETE FROM tenants_personaldetail")
        owner.execute(statement)
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table, trigger in AUDIT_LOCKS[:2]:
            owner.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
            owner.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}")


def test_the_chain_stays_whole_when_names_are_erased(acme: Project) -> None:
    with operator_scope("test"):
        seal_now()
        PersonalDetail.objects.filter(tenant=acme.tenant_id).delete()
        assert problems() == []
        event = AuditEvent.objects.filter(record_kind="tenants.Tenant").get()
        assert "Acme" not in event.changes and event.changed_fields["name"] == "personal"


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_time_leave_one_chain_without_a_gap(
    acme: Project, globex: Project
) -> None:
    def write(number: int) -> None:
        first, second = (acme, globex) if number % 2 else (globex, acme)
        with operator_scope("test"):
            User.objects.create(email=f"{number}@example.org")
            Quota.objects.create(
                tenant_id=first.tenant_id, project=first, limit=f"a{number}", value=1
            )
            Quota.objects.create(
                tenant_id=second.tenant_id, project=second, limit=f"b{number}", value=1
            )
        connection.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(40)))
    assert count(record_kind="tenants.Quota") == 80
    with operator_scope("test"):
        assert problems() == []


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_takes_long_keeps_nobody_waiting(acme: Project, globex: Project) -> None:
    def write(project: Project) -> None:
        with operator_scope("test"):
            Project.objects.create(tenant=project.tenant, name="meanwhile")
        connection.close()

    with ThreadPoolExecutor(1) as threads, operator_scope("test"):
        Project.objects.create(tenant=acme.tenant, name="taking long")
        for project in (acme, globex):
            threads.submit(write, project).result(timeout=20)
    with operator_scope("test"):
        assert problems() == []
        names = [event.personal.record_name for event in acme.tenant.audit_events.all()]
        newest_first = acme.tenant.audit_events.order_by("-sequence").select_related("personal")
        assert newest_first[0].personal.record_name == "taking long"
        assert "meanwhile" in names


# The check --------------------------------------------------------------------------------------


def test_every_table_that_must_be_audited_is() -> None:
    assert tables_without_audit("default") == []
    assert check_audit(databases=["default"]) == []


def test_a_table_that_leaves_no_trace_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AuditEvent, "is_audited", True)
    assert [error.id for error in check_audit(databases=["default"])] == ["tenants.E003"]
