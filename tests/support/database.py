"""The database between two tests with real transactions."""

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

AUDIT_LOCKS = (
    ("tenants_auditevent", "append_only"),
    ("tenants_personaldetail", "erase_only"),
    ("tenants_auditchain", "heads_stay"),
)
LOCKS = (
    *AUDIT_LOCKS,
    ("billing_ledgertransaction", "append_only"),
    ("billing_ledgerentry", "append_only"),
    ("billing_ledgerhead", "heads_stay"),
    ("billing_ledgeraccount", "accounts_stay"),
    ("billing_price", "append_only"),
    ("billing_pricecorrection", "append_only"),
    ("billing_tiermultiplier", "append_only"),
    ("billing_poolcost", "append_only"),
)


# What migrations wrote.
KEPT = ("django_migrations", "django_content_type", "auth_permission")


class TableEmptier:
    """Deletes what a test has committed, from just the tables that have rows. To truncate them all
    takes PostgreSQL twenty times as long: every table and every index becomes a new file."""

    def __init__(self, superuser_url: str) -> None:
        """Signs in at the first call of `empty`."""
        self._url = superuser_url
        self._superuser: psycopg.Connection[Any] | None = None

    def empty(self) -> None:
        if self._superuser is None:
            self._superuser = psycopg.connect(self._url, autocommit=True)
        tables = _with_rows(self._superuser)
        if tables:
            self._superuser.execute(sql.SQL("; ").join(_deletions(tables)))

    def close(self) -> None:
        if self._superuser is not None:
            self._superuser.close()


def _with_rows(superuser: psycopg.Connection[Any]) -> list[str]:
    """The tables and partitions that have rows. Pages outlive the rows that were deleted, so those
    with pages are looked into."""
    paged = superuser.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace AND relname <> ALL(%s)"
        " AND pg_relation_size(oid) > 0",
        [list(KEPT)],
    ).fetchall()
    if not paged:
        return []
    looks = [
        sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(
            sql.Literal(name), sql.Identifier(name)
        )
        for (name,) in paged
    ]
    return [name for (name,) in superuser.execute(sql.SQL(" UNION ALL ").join(looks))]


def _deletions(tables: list[str]) -> Iterator[sql.Composable]:
    locks = [tuple(map(sql.Identifier, lock)) for lock in LOCKS if lock[0] in tables]
    yield sql.SQL("BEGIN")
    # No foreign key is asked, so the order does not matter.
    yield sql.SQL("SET LOCAL session_replication_role = replica")
    # Audit log and ledger refuse until their triggers are off.
    for lock in locks:
        yield sql.SQL("ALTER TABLE {} DISABLE TRIGGER {}").format(*lock)
    for table in tables:
        yield sql.SQL("DELETE FROM {}").format(sql.Identifier(table))
    for lock in locks:
        yield sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(*lock)
    yield sql.SQL("COMMIT")
