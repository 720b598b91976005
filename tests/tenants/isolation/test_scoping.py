"""The walls between tenants, as the role sees them that all but `migrate` sign in as."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from tenants.access.api_keys import issue_api_key
from tenants.isolation.row_security import (
    check_managers,
    check_walls,
    has_tenant,
    tables_without_wall,
)
from tenants.isolation.scoping import (
    NoTenantScope,
    Scope,
    current_scope,
    operator_scope,
    tenant_scope,
    user_scope,
)
from tenants.models import Membership, Project, Quota, Tenant, User
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
MODELS = [model for model in apps.get_models() if has_tenant(model)]


@pytest.fixture
def two_tenants() -> tuple[Project, Project]:
    with operator_scope("test"):
        projects = make_project("Acme", "premium"), make_project("Globex", "standard")
        for project in projects:
            issue_api_key(project)
        return projects


def rows(table: str) -> list[uuid.UUID]:
    """What plain SQL finds, past every manager."""
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT id FROM "{table}"')  # noqa: S608
        return [row for (row,) in cursor.fetchall()]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_manager_raises_where_nobody_said_whose(model: type) -> None:
    with pytest.raises(NoTenantScope) as refused:
        model._default_manager.all()  # type: ignore[attr-defined]
    assert refused.value.scope is None


def test_plain_sql_finds_nothing_without_a_tenant(two_tenants: tuple[Project, Project]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == ("penstock_web",)
    for model in MODELS:
        with connection.cursor() as cursor:
            cursor.execute(f'SELECT count(*) FROM "{model._meta.db_table}"')  # noqa: S608
            assert cursor.fetchone() == (0,)


def test_a_tenant_finds_its_own_and_nothing_of_another(
    two_tenants: tuple[Project, Project],
) -> None:
    acme, globex = two_tenants
    with tenant_scope(acme.tenant_id):
        assert [project.id for project in Project.objects.all()] == [acme.id]
        assert rows("tenants_project") == [acme.id]
        assert rows("tenants_tenant") == [acme.tenant_id]
        assert not Project.objects.filter(id=globex.id).exists()
    assert rows("tenants_project") == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO tenants_project (id, tenant_id, name, created_at)"
        " VALUES (gen_random_uuid(), '{globex}', 'mine', now())",
        "UPDATE tenants_project SET tenant_id = '{globex}'",
        "UPDATE tenants_tenant SET is_suspended = false",
        "UPDATE tenants_tier SET requests_per_minute = 1000000",
        "DELETE FROM inference_usagerecord",
        "UPDATE tenants_apikey SET project_id = '{globex_project}'; SET CONSTRAINTS ALL IMMEDIATE",
    ],
)
def test_writing_across_the_wall_fails(
    two_tenants: tuple[Project, Project], statement: str
) -> None:
    acme, globex = two_tenants
    sql = statement.format(globex=globex.tenant_id, globex_project=globex.id)
    with pytest.raises(DatabaseError), tenant_scope(acme.tenant_id), connection.cursor() as cursor:
        for part in sql.split(";"):
            cursor.execute(part)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tenants_project SET name = 'mine' WHERE id = %s",
        "DELETE FROM tenants_apikey WHERE project_id = %s",
    ],
)
def test_what_is_behind_the_wall_is_not_changed(
    two_tenants: tuple[Project, Project], statement: str
) -> None:
    acme, globex = two_tenants
    with tenant_scope(acme.tenant_id), connection.cursor() as cursor:
        cursor.execute(statement, [globex.id])
        assert cursor.rowcount == 0


def test_a_quota_cannot_name_another_tenants_project(two_tenants: tuple[Project, Project]) -> None:
    acme, globex = two_tenants
    with pytest.raises(DatabaseError), tenant_scope(acme.tenant_id):
        Quota.objects.create(
            tenant_id=acme.tenant_id, project_id=globex.id, limit="tokens_per_day", value=1
        )
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def test_a_scope_ends_with_its_block_and_restores_the_one_around_it(
    two_tenants: tuple[Project, Project],
) -> None:
    acme, globex = two_tenants
    with operator_scope("test"):
        assert len(rows("tenants_project")) == 2
        with tenant_scope(acme.tenant_id):
            assert rows("tenants_project") == [acme.id]
        assert len(rows("tenants_project")) == 2
        with pytest.raises(ZeroDivisionError), tenant_scope(globex.tenant_id):
            raise ZeroDivisionError
        assert len(rows("tenants_project")) == 2
    assert current_scope() is None
    assert rows("tenants_project") == []


def test_a_user_finds_their_memberships_before_a_tenant_is_chosen(
    two_tenants: tuple[Project, Project],
) -> None:
    alice = User.objects.create_user("alice@acme.example", "correct horse battery")
    bob = User.objects.create_user("bob@globex.example", "correct horse battery")
    with operator_scope("test"):
        for project, user in zip(two_tenants, (alice, bob), strict=True):
            Membership.objects.create(tenant_id=project.tenant_id, user=user)
        Membership.objects.create(tenant_id=two_tenants[1].tenant_id, user=alice)
    with user_scope(alice.id):
        assert {row.tenant_id for row in Membership.objects.all()} == {
            project.tenant_id for project in two_tenants
        }
        assert len(rows("tenants_membership")) == 2
        with pytest.raises(NoTenantScope) as refused:
            Project.objects.all()
        assert refused.value.scope == Scope(user_id=alice.id)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE tenants_membership SET role = 'owner'")
            assert cursor.rowcount == 0


def test_every_table_with_a_tenant_has_its_wall() -> None:
    assert len(MODELS) >= 9
    assert tables_without_wall("default") == []
    assert check_walls(databases=["default"]) == []
    assert check_managers() == []


@pytest.fixture
def owner() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(settings.ENV.owner_database_url) as owner:
        yield owner
        owner.rollback()


def test_a_partition_and_a_table_without_a_wall_are_found() -> None:
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        owner.execute("CREATE TABLE left_open (tenant_id uuid) PARTITION BY LIST (tenant_id)")
        owner.execute("CREATE TABLE left_open_part PARTITION OF left_open DEFAULT")
        try:
            with transaction.atomic():
                assert tables_without_wall("default") == ["left_open", "left_open_part"]
            assert [error.id for error in check_walls(databases=["default"])] == [
                "tenants.E002"
            ] * 2
        finally:
            owner.execute("DROP TABLE left_open")


def test_the_owner_of_the_tables_is_held_back_too(
    two_tenants: tuple[Project, Project], owner: psycopg.Connection[tuple[object, ...]]
) -> None:
    assert owner.execute("SELECT count(*) FROM tenants_tenant").fetchone() == (0,)


def test_neither_role_passes_row_security_by_nature() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'penstock\\_%%'"
            " AND (rolsuper OR rolbypassrls)"
        )
        assert cursor.fetchall() == []


def test_a_tenant_is_named_by_its_id_only() -> None:
    with tenant_scope(uuid.uuid4()):
        assert not Tenant.objects.exists()
