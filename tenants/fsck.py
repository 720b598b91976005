"""What must hold in a deployment. `manage.py fsck` checks all of it, and the scheduler each night.

Apps register their checks when they are ready, so that each checks what it knows.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from tenants.isolation.scoping import operator_scope

# Yields a sentence for each thing that is wrong, naming the record and what was expected of it.
Check = Callable[[], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    check: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class RegisteredCheck:
    """`needs_snapshot` is of those that compare what several statements read."""

    check: Check
    needs_snapshot: bool = False


# By name.
checks: dict[str, RegisteredCheck] = {}


def register_check(name: str, check: Check, *, needs_snapshot: bool = False) -> None:
    """Add a check, or replace the one of this name. It runs inside an `operator_scope`. All that
    one that `needs_snapshot` reads of PostgreSQL is as it was when it began, whatever is written
    meanwhile."""
    checks[name] = RegisteredCheck(check=check, needs_snapshot=needs_snapshot)


def check_names() -> list[str]:
    return sorted(checks)


def run_checks() -> Iterator[Finding]:
    """Yield everything that is wrong, one check after the other, each in a transaction of its
    own."""
    for name in check_names():
        registered = checks[name]
        with _view(registered), operator_scope(f"fsck {name}"):
            for problem in registered.check():
                yield Finding(check=name, problem=problem)


@contextmanager
def _view(registered: RegisteredCheck) -> Iterator[None]:
    """Give a check that needs it one snapshot of the database; in a transaction that is open
    already, that one's view holds."""
    if not registered.needs_snapshot or connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
