"""What must hold in a deployment. `manage.py fsck` checks all of it, and the scheduler each night.

Apps register their checks when they are ready, so that each checks what it knows. What reads all
records that there are is checked in slices, each in a transaction of its own. A run that is cut
short goes on after the last slice that it has finished, the next time, and then with those before.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from django.db import connection, transaction

from tenants.audit.checkpoints import ChainedLog, verify_from_checkpoints
from tenants.isolation.scoping import operator_scope
from tenants.models import CheckProgress, Tenant

# Yields a sentence for each thing that is wrong, naming the record and what was expected of it.
Check = Callable[[], Iterable[str]]
# The same of some slices.
SlicedCheck = Callable[[Sequence[str]], Iterable[str]]

# Tenants whose records are compared by one statement.
_TENANTS_AT_ONCE: Final = 50


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    check: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class RegisteredCheck:
    """`needs_snapshot` is of those that compare what several statements read. One of a chained log
    has `log` in place of `check`, and one that runs in slices `sliced`, `slices` and `at_once`."""

    check: Check | None = None
    needs_snapshot: bool = False
    log: ChainedLog | None = None
    sliced: SlicedCheck | None = None
    slices: Callable[[], Iterable[str]] | None = None
    at_once: int = 1


# By name.
checks: dict[str, RegisteredCheck] = {}


def register_check(name: str, check: Check, *, needs_snapshot: bool = False) -> None:
    """Add a check, or replace the one of this name. It runs inside an `operator_scope`. All that
    one that `needs_snapshot` reads of PostgreSQL is as it was when it began, whatever is written
    meanwhile."""
    checks[name] = RegisteredCheck(check=check, needs_snapshot=needs_snapshot)


def register_sliced(
    name: str,
    check: SlicedCheck,
    slices: Callable[[], Iterable[str]],
    *,
    at_once: int = 1,
    needs_snapshot: bool = False,
) -> None:
    """Add a check that is made of so many slices at once, each time in a transaction of its own.
    `slices` names all there are; they are sorted. A slice that is checked alone has to find what
    it would with all others."""
    checks[name] = RegisteredCheck(
        sliced=check, slices=slices, at_once=at_once, needs_snapshot=needs_snapshot
    )


def register_check_of_tenants(
    name: str, check: SlicedCheck, *, needs_snapshot: bool = False
) -> None:
    """Add a check whose slices are the ids of tenants."""
    register_sliced(
        name, check, tenant_slices, at_once=_TENANTS_AT_ONCE, needs_snapshot=needs_snapshot
    )


def tenant_slices() -> list[str]:
    return [str(each) for each in Tenant.objects.order_by("id").values_list("id", flat=True)]


def register_log(log: ChainedLog) -> None:
    """Add the check of a chained log, or replace that of this name. It is verified from signed
    checkpoints, chain by chain, and goes on from there where it was cut short."""
    checks[log.name] = RegisteredCheck(log=log)


def check_names() -> list[str]:
    return sorted(checks)


def run_checks(*, whole: bool = False) -> Iterator[Finding]:
    """Yield everything that is wrong, one check after the other, each in a transaction of its own;
    `whole`: chained logs from their beginnings."""
    for name in check_names():
        registered = checks[name]
        if registered.log is not None:
            for problem in verify_from_checkpoints(registered.log, snapshot, whole=whole):
                yield Finding(check=name, problem=problem)
        elif registered.sliced is not None and registered.slices is not None:
            for problem in _run_slices(name, registered.sliced, registered.slices, registered):
                yield Finding(check=name, problem=problem)
        elif registered.check is not None:
            view = snapshot() if registered.needs_snapshot else nullcontext()
            with view, operator_scope(f"fsck {name}"):
                for problem in registered.check():
                    yield Finding(check=name, problem=problem)


def _run_slices(
    name: str,
    check: SlicedCheck,
    all_slices: Callable[[], Iterable[str]],
    registered: RegisteredCheck,
) -> Iterator[str]:
    with operator_scope(f"fsck {name}"):
        slices = sorted(all_slices())
        begun = CheckProgress.objects.filter(check_name=name).first()
    first = 0 if begun is None else bisect_right(slices, begun.slice)
    for part in (slices[first:], slices[:first]):
        for start in range(0, len(part), registered.at_once):
            some = part[start : start + registered.at_once]
            view = snapshot() if registered.needs_snapshot else nullcontext()
            with view, operator_scope(f"fsck {name}"):
                yield from check(some)
            with operator_scope(f"fsck {name}"):
                CheckProgress.objects.update_or_create(
                    check_name=name, defaults={"slice": some[-1]}
                )


@contextmanager
def snapshot() -> Iterator[None]:
    """Open one view of the database; in a transaction that is open already, that one's holds."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
