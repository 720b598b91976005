"""Migration operations that put tables under the audit log, and the check that finds one without.

The log is written by triggers, so that no way of changing a record goes past it: bulk updates,
cascades, SQL by hand.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connections, models
from django.db.migrations.operations.base import Operation

from tenants.isolation.row_security import has_migrations_to_apply, has_tenant
from tenants.models.policy_change import AffectsPolicy


class Audit(Operation):
    """Every change of a model's table leaves an event.

    `label` are columns that name a record to people, the first that is not empty (`user_id` stands
    for that user's email address). `noise` are columns that machines write all the time, `secret`
    ones of which only the change is told (digests are so by their type), `personal` those that may
    name a person and must be erasable. `tenant` is the column with the tenant's id; by default
    the model's own, if it has one.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(
        self,
        model_name: str,
        *,
        label: Iterable[str] = (),
        noise: Iterable[str] = (),
        secret: Iterable[str] = (),
        personal: Iterable[str] = (),
        tenant: str | None = None,
    ) -> None:
        self.model_name = model_name
        self.label = list(label)
        self.noise = list(noise)
        self.secret = list(secret)
        self.personal = list(personal)
        self.tenant = tenant

    def describe(self) -> str:
        return f"Audit {self.model_name}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the state as it is: the models know nothing of triggers."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        for statement in self._forwards(model, schema_editor.quote_name(model._meta.db_table)):
            schema_editor.execute(statement, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = from_state.apps.get_model(app_label, self.model_name)
        table = schema_editor.quote_name(model._meta.db_table)
        for name in ("audit_insert", "audit_update", "audit_delete"):
            schema_editor.execute(f"DROP TRIGGER {name} ON {table}", params=None)

    def _forwards(self, model: type[models.Model], table: str) -> Iterable[str]:
        columns = {str(field.column) for field in model._meta.concrete_fields}
        key = str(model._meta.pk.column)
        tenant = self.tenant or ("tenant_id" if "tenant_id" in columns else "")
        arguments = ", ".join(
            f"'{argument}'"
            for argument in (
                model._meta.label,
                key,
                tenant,
                ",".join(self.label),
                ",".join(self.noise),
                ",".join(self.secret),
                ",".join(self.personal),
            )
        )
        for event, rows in (
            ("INSERT", "NEW TABLE AS new_rows"),
            ("UPDATE", "OLD TABLE AS old_rows NEW TABLE AS new_rows"),
            ("DELETE", "OLD TABLE AS old_rows"),
        ):
            yield (
                f"CREATE TRIGGER audit_{event.lower()} AFTER {event} ON {table} REFERENCING {rows}"
                f" FOR EACH STATEMENT EXECUTE FUNCTION penstock_audit_statement({arguments})"
            )


# The check --------------------------------------------------------------------------------------


def must_be_audited(model: type[models.Model]) -> bool:
    """Return whether a model belongs to a tenant or makes policy, unless its `is_audited` says
    otherwise."""
    by_nature = has_tenant(model) or issubclass(model, AffectsPolicy)
    return bool(getattr(model, "is_audited", by_nature))


def audited_models() -> list[type[models.Model]]:
    return [model for model in apps.get_models() if must_be_audited(model)]


def tables_without_audit(database: str) -> list[str]:
    """Return the tables that must be audited and lack the trigger."""
    tables = [model._meta.db_table for model in audited_models()]
    with connections[database].cursor() as cursor:
        cursor.execute(
            """
            SELECT name FROM unnest(%s::text[]) AS name
            WHERE (
                SELECT count(*) FROM pg_trigger
                WHERE tgrelid = to_regclass('public.' || quote_ident(name)) AND tgenabled <> 'D'
                AND tgname IN ('audit_insert', 'audit_update', 'audit_delete')
            ) < 3
            ORDER BY name
            """,
            [tables],
        )
        return [name for (name,) in cursor.fetchall()]


def check_audit(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report tables without the audit trigger; runs when `row_security.check_walls` does."""
    return [
        Error(
            f"Changes of the table {table} are not audited.",
            hint="Add tenants.audit.triggers.Audit to a migration, or is_audited = False.",
            id="tenants.E003",
        )
        for database in databases or []
        if not has_migrations_to_apply(database)
        for table in tables_without_audit(database)
    ]
