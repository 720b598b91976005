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
_TENANTS_TOGETHER: Final = 50


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    check: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class RegisteredCheck:
    """`needs_snapshot` is of those that compare what several statements read. One of a chained log
    has `log` in place of `check`, and one that runs in slices `sliced`, `slices` and `together`."""

    check: Check | None = None
    needs_snapshot: bool = False
    log: ChainedLog | None = None
    sliced: SlicedCheck | None = None
    slices: Callable[[], Iterable[str]] | None = None
    together: int = 1


# By name.
checks: dict[str, RegisteredCheck] = {}


def register(name: str, check: RegisteredCheck) -> None:
    """Add a check, or replace the one of this name."""
    checks[name] = check


def whole(check: Check, *, needs_snapshot: bool = False) -> RegisteredCheck:
    """Return one that runs whole, inside an `operator_scope`. All that one that `needs_snapshot`
    reads of PostgreSQL is as it was when it began, whatever is written meanwhile."""
    return RegisteredCheck(check=check, needs_snapshot=needs_snapshot)


def in_slices(
    check: SlicedCheck, slices: Callable[[], Iterable[str]], *, together: int = 1
) -> RegisteredCheck:
    """Return one that is made of so many slices together, each time in a transaction of its own.
    `slices` names all there are; they are sorted. A slice that is checked alone has to find what
    it would with all others."""
    return RegisteredCheck(sliced=check, slices=slices, together=together)


def by_tenant(check: SlicedCheck) -> RegisteredCheck:
    """Return one whose slices are the ids of tenants."""
    return in_slices(check, tenant_slices, together=_TENANTS_TOGETHER)


def of_log(log: ChainedLog) -> RegisteredCheck:
    """Return that of a chained log, to be registered by its name. It is verified from signed
    checkpoints, chain by chain, and goes on from there where it was cut short."""
    return RegisteredCheck(log=log)


def tenant_slices() -> list[str]:
    return [str(each) for each in Tenant.objects.order_by("id").values_list("id", flat=True)]


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
        for start in range(0, len(part), registered.together):
            some = part[start : start + registered.together]
            with operator_scope(f"fsck {name}"):
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
