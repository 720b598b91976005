"""One live stack with the real vLLM, shared by all acceptance tests of a run."""

from collections.abc import Iterator

import pytest

from tests.acceptance.stack import LiveStack
from tests.live_stack import run_live_stack


@pytest.fixture(scope="session")
def live_stack() -> Iterator[LiveStack]:
    """Takes as long to start as an engine: mark what uses it `engine` and `stack`."""
    with run_live_stack() as stack:
        yield stack
