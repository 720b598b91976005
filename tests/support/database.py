"""The database between two tests: emptied after real transactions, or never really changed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any, Generic, TypeVar

import psycopg
import pytest
from django.db import connection, transaction
from psycopg import sql
from pytest_django import DjangoDbBlocker

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


_Made = TypeVar("_Made")


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


class Remembered(Generic[_Made]):
    """What a function commits to an empty database. It is called once; later its rows are put back
    as they were, which takes a tenth of the time."""

    def __init__(self, superuser_url: str, make: Callable[[], _Made]) -> None:
        """Signs in at the first call of `committed`."""
        self._url = superuser_url
        self._make = make
        self._superuser: psycopg.Connection[Any] | None = None
        self._made: _Made | None = None
        self._rows: dict[str, bytes] = {}

    def committed(self) -> _Made:
        """Where something else is in the database the function is called as ever."""
        if self._superuser is None:
            self._superuser = psycopg.connect(self._url, autocommit=True)
        if _with_rows(self._superuser):
            return self._make()
        if self._made is None:
            self._made = self._make()
            self._rows = {each: self._copied(each) for each in _with_rows(self._superuser)}
        else:
            self._restore()
        return deepcopy(self._made)

    def close(self) -> None:
        if self._superuser is not None:
            self._superuser.close()

    def _copied(self, table: str) -> bytes:
        assert self._superuser is not None
        query = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(table))
        with self._superuser.cursor().copy(query) as copy:
            return b"".join(bytes(piece) for piece in copy)

    def _restore(self) -> None:
        assert self._superuser is not None
        with self._superuser.transaction(), self._superuser.cursor() as cursor:
            # Past every trigger: what they check, count and seal is in the rows.
            cursor.execute("SET LOCAL session_replication_role = replica")
            for table, rows in self._rows.items():
                query = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(sql.Identifier(table))
                with cursor.copy(query) as copy:
                    copy.write(rows)


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


@contextmanager
def shared(make: Callable[[], _Made], blocker: DjangoDbBlocker) -> Iterator[_Made]:
    """What `make` writes is there for every test within the block, each of which works behind a
    savepoint, and is undone after it. No test with real transactions may be among them: another
    connection would not see these rows, and would wait for them."""
    with ExitStack() as stack:
        with blocker.unblock():
            stack.enter_context(_undone())
            made = make()
            # As a commit does: deferred triggers number the changes and seal the audit log.
            connection.check_constraints()
        yield made
        with blocker.unblock():
            stack.close()


@contextmanager
def _undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def commits(item: pytest.Item) -> bool:
    """Whether a test has real transactions."""
    marker = item.get_closest_marker("django_db")
    is_marked = marker is not None and bool(marker.kwargs.get("transaction"))
    return is_marked or "transactional_db" in getattr(item, "fixturenames", ())


def connections_in_use() -> int:
    """How many connections of this process's pool somebody has."""
    stats: dict[str, int] = connection.pool.get_stats()  # type: ignore[attr-defined]
    return stats["pool_size"] - stats["pool_available"]


def somebody_waits() -> bool:
    """Return whether a transaction waits for what another holds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone() != (0,))
