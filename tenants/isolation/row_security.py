"""Migration operations for PostgreSQL's row-level security, and the check that finds a table
without it.

Every table with a tenant has it FORCED, so that not even the owner of the tables passes by. The web
role sees the rows of the tenant that `tenant_scope` has set, none where nothing is set; the
operator role sees all.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connections, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.operations.base import Operation

from tenants.isolation.roles import OPERATOR_ROLE, WEB_ROLE
from tenants.isolation.scoping import TENANT_SETTING, USER_SETTING, ScopedManager

_CURRENT_TENANT = f"NULLIF(current_setting('{TENANT_SETTING}', true), '')::uuid"
_CURRENT_USER = f"NULLIF(current_setting('{USER_SETTING}', true), '')::uuid"


class _SqlOnModel(Operation):
    """SQL about one model's table."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the state as it is: the models know nothing of rights."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        table = schema_editor.quote_name(model._meta.db_table)
        for statement in self.forwards(table):
            schema_editor.execute(statement, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        table = schema_editor.quote_name(model._meta.db_table)
        for statement in self.backwards(table):
            schema_editor.execute(statement, params=None)

    def forwards(self, table: str) -> Iterable[str]:
        raise NotImplementedError

    def backwards(self, table: str) -> Iterable[str]:
        raise NotImplementedError


class BuildTenantWall(_SqlOnModel):
    """Row-level security on a table whose `column` holds the tenant's id.

    With `user_column` the rows of the signed-in user can be read too, before a tenant is known.
    """

    def __init__(
        self, model_name: str, *, column: str = "tenant_id", user_column: str | None = None
    ) -> None:
        super().__init__(model_name)
        self.column = column
        self.user_column = user_column

    def describe(self) -> str:
        return f"Build the tenant wall of {self.model_name}"

    def forwards(self, table: str) -> Iterable[str]:
        own = f'"{self.column}" = {_CURRENT_TENANT}'
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
        yield (
            f"CREATE POLICY tenant_wall ON {table} TO {WEB_ROLE} USING ({own}) WITH CHECK ({own})"
        )
        yield (
            f"CREATE POLICY operators ON {table} TO {OPERATOR_ROLE} USING (true) WITH CHECK (true)"
        )
        if self.user_column is not None:
            yield (
                f"CREATE POLICY own_rows ON {table} FOR SELECT TO {WEB_ROLE}"
                f' USING ("{self.user_column}" = {_CURRENT_USER})'
            )

    def backwards(self, table: str) -> Iterable[str]:
        for policy in ("own_rows", "operators", "tenant_wall"):
            yield f"DROP POLICY IF EXISTS {policy} ON {table}"
        yield f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"


class LetWebOnly(_SqlOnModel):
    """What the web role may do with a table, of SELECT, INSERT, UPDATE and DELETE; the operator
    role may do all. For a table that is less than fully the tenants' to change."""

    def __init__(self, model_name: str, *rights: str) -> None:
        super().__init__(model_name)
        self.rights = rights

    def describe(self) -> str:
        return f"Let the web role only {', '.join(self.rights)} {self.model_name}"

    def forwards(self, table: str) -> Iterable[str]:
        yield f"REVOKE ALL ON {table} FROM {WEB_ROLE}"
        if self.rights:
            yield f"GRANT {', '.join(self.rights)} ON {table} TO {WEB_ROLE}"

    def backwards(self, table: str) -> Iterable[str]:
        yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {WEB_ROLE}"


class BindToTenant(_SqlOnModel):
    """A reference that can only name a row of the same tenant: a foreign key over both columns.

    Row-level security does not look at what a foreign key points to. `target` needs a unique
    constraint over (id, tenant_id).
    """

    def __init__(self, model_name: str, *, column: str, target: str) -> None:
        super().__init__(model_name)
        self.column = column
        self.target = target

    def describe(self) -> str:
        return f"Bind {self.column} of {self.model_name} to its tenant"

    def forwards(self, table: str) -> Iterable[str]:
        yield (
            f'ALTER TABLE {table} ADD CONSTRAINT "{self._name(table)}"'
            f' FOREIGN KEY ("{self.column}", tenant_id) REFERENCES "{self.target}" (id, tenant_id)'
            " DEFERRABLE INITIALLY DEFERRED"
        )

    def backwards(self, table: str) -> Iterable[str]:
        yield f'ALTER TABLE {table} DROP CONSTRAINT "{self._name(table)}"'

    def _name(self, table: str) -> str:
        return f"{table.strip(chr(34))}_{self.column}_of_tenant"


class GiveRolesTheirRights(Operation):
    """Rights of both roles on the tables that are there and on those that come; `BuildTenantWall`
    and `LetWebOnly` narrow them. The roles must exist: see control_plane/database_roles.py."""

    reduces_to_sql = True
    reversible = False
    _rights = "SELECT, INSERT, UPDATE, DELETE"

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the state as it is: the models know nothing of rights."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        both = f"{WEB_ROLE}, {OPERATOR_ROLE}"
        for statement in (
            f"GRANT USAGE ON SCHEMA public TO {both}",
            f"GRANT {self._rights} ON ALL TABLES IN SCHEMA public TO {both}",
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {both}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {self._rights} ON TABLES TO {both}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {both}",
        ):
            schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        return "Give the web and operator roles their rights"


# The check --------------------------------------------------------------------------------------


def has_tenant(model: type[models.Model]) -> bool:
    """Return whether a model's rows belong to a tenant: it is one, or has a column that names
    one."""
    names = {field.column for field in model._meta.concrete_fields}
    return "tenant_id" in names or model._meta.label == "tenants.Tenant"


def tables_without_wall(database: str) -> list[str]:
    """Return the tables with a tenant, partitions too, whose row-level security is not on, forced
    and with its policies."""
    models_with_tenant = filter(has_tenant, apps.get_models(include_auto_created=True))
    tables = [model._meta.db_table for model in models_with_tenant]
    with connections[database].cursor() as cursor:
        cursor.execute(
            """
            WITH RECURSIVE walled AS (
                SELECT oid FROM pg_class
                WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
                AND (relname = ANY(%s) OR EXISTS (
                    SELECT 1 FROM pg_attribute WHERE attrelid = pg_class.oid
                    AND attname = 'tenant_id' AND NOT attisdropped))
                UNION
                SELECT inhrelid FROM pg_inherits JOIN walled ON inhparent = walled.oid
            )
            SELECT relname FROM pg_class JOIN walled USING (oid)
            WHERE NOT (relrowsecurity AND relforcerowsecurity AND EXISTS (
                SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid AND polname = 'tenant_wall'))
            ORDER BY relname
            """,
            [tables],
        )
        return [name for (name,) in cursor.fetchall()]


def check_managers(**_: Any) -> list[CheckMessage]:
    """Report models with a tenant whose manager does not ask for a scope."""
    return [
        Error(
            f"{model._meta.label} has a tenant and a manager that asks for none.",
            hint="Make its `objects` a tenants.isolation.scoping.ScopedManager.",
            obj=model,
            id="tenants.E001",
        )
        for model in apps.get_models()
        if has_tenant(model) and not isinstance(model._default_manager, ScopedManager)
    ]


def check_walls(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report tables without row-level security. Runs with `check --database` and before `migrate`,
    as Django's database checks do. While migrations are yet to be applied it says nothing: they may
    be what builds the wall."""
    return [
        Error(
            f"The table {table} has a tenant and no row-level security.",
            hint="Add tenants.isolation.row_security.BuildTenantWall to a migration.",
            id="tenants.E002",
        )
        for database in databases or []
        if not has_migrations_to_apply(database)
        for table in tables_without_wall(database)
    ]


def wall_problems() -> Iterable[str]:
    """Report, for fsck, tables of tenants without row-level security, made or changed by hand."""
    for table in tables_without_wall("default"):
        yield f"The table {table} has a tenant and no row-level security."


def has_migrations_to_apply(database: str) -> bool:
    executor = MigrationExecutor(connections[database])
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
