"""What must hold in a deployment. `manage.py fsck` checks all of it, and the scheduler each night.

Apps register their checks when they are ready, so that each checks what it knows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tenants.scoping import operator_scope

# Yields a sentence for each thing that is wrong, naming the record and what was expected of it.
Check = Callable[[], Iterable[str]]

_checks: dict[str, Check] = {}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    check: str
    problem: str


def register_check(name: str, check: Check) -> None:
    """Add a check, or replace the one of this name. It runs inside an `operator_scope`."""
    _checks[name] = check


def check_names() -> list[str]:
    return sorted(_checks)


def run_checks() -> Iterator[Finding]:
    """Everything that is wrong, one check after the other, each in a transaction of its own."""
    for name in check_names():
        with operator_scope(f"fsck {name}"):
            for problem in _checks[name]():
                yield Finding(check=name, problem=problem)
