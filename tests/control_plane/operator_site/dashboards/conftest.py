"""What was read for one test is not shown in another."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.figures.live_panels import forget_panels


@pytest.fixture(autouse=True)
def forget_readings() -> Iterator[Callable[[], None]]:
    """Panels are read anew; call it for that within a test."""
    forget_panels()
    yield forget_panels
    forget_panels()
