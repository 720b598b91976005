"""How the processes of a run share the tests out: a pytest plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

# What takes longest begins first, so that the processes of a run end together.
LIVE_STACK = "live stack"
LONGEST = (
    LIVE_STACK,
    "test_every_target.py",
    "test_engine_contract.py",
    "test_planted_bugs.py",
    "test_two_gateways.py",
    "test_django_routes.py",
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Processes of a run (`make test` has two) share the tests out file by file, but only one of
    them has the live stack. What pytest-django puts first stays so within a file."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    yield
    items.sort(key=lambda item: (_rank(item), item.path))


def _group(item: pytest.Item) -> str:
    needs_stack = "live_stack" in getattr(item, "fixturenames", ())
    return LIVE_STACK if needs_stack else str(item.path)


def _rank(item: pytest.Item) -> int:
    name = Path(_group(item)).name
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Where the groups are lost, as by pytest 9.2 with xdist 3.8, each process starts an engine."""
    are_shared_out = getattr(session.config.option, "loadgroup", False)
    if are_shared_out and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError(
            "This pytest and this xdist do not share tests out by their groups."
        )
