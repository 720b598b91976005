"""One live stack with the real vLLM, shared by all acceptance tests of a run."""

from collections.abc import Iterator

import pytest

from tests.support.live_stack import run_live_stack
from tests.support.stack_addresses import LiveStack


@pytest.fixture(scope="session")
def live_stack() -> Iterator[LiveStack]:
    """Takes as long to start as an engine: mark what uses it `engine` and `stack`."""
    with run_live_stack() as stack:
        yield stack
