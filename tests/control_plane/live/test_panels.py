"""One reading a second for all pages, and old figures where there is no new one."""

import threading
from functools import partial

import pytest
from control_plane.live.panels import RETRY_SECONDS, Panel, current
from django.db import OperationalError
from redis.exceptions import ConnectionError as RedisAway

from gpu_workers.protocol.codec import WireFormatError


class Source:
    """What a panel reads: a number that goes up, or an error."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None

    def __call__(self) -> int:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.reads


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def panel(source: Source, request: pytest.FixtureRequest) -> Panel:
    return Panel(name=request.node.name[:60], title="Numbers", template="", read=source)


def test_twenty_pages_cost_one_reading_a_second(panel: Panel, source: Source) -> None:
    for page in range(20):
        assert current(panel, partial(float, 100 + page / 25)).data == 1
    assert source.reads == 1
    assert current(panel, lambda: 101.1).data == 2


def test_who_comes_while_another_reads_gets_what_was_there_before(panel: Panel) -> None:
    current(Panel(name=panel.name, title="", template="", read=lambda: "before"), lambda: 100.0)
    is_reading, may_end = threading.Event(), threading.Event()

    def slow() -> str:
        is_reading.set()
        may_end.wait(10)
        return "after"

    reads = Panel(name=panel.name, title="", template="", read=slow)
    thread = threading.Thread(target=current, args=(reads, lambda: 102.0))
    thread.start()
    is_reading.wait(10)
    assert current(panel, lambda: 102.0).data == "before"
    may_end.set()
    thread.join(10)
    assert current(panel, lambda: 102.5).data == "after"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RedisAway("refused by 10.0.0.1"), "The dispatch Redis is not reachable."),
        (OperationalError("no such host db.internal"), "PostgreSQL is not reachable."),
        (WireFormatError("expected ..."), "What Redis has is of another version."),
    ],
)
def test_what_cannot_be_read_leaves_the_old_figures_and_says_since_when(
    panel: Panel, source: Source, error: Exception, sentence: str
) -> None:
    current(panel, lambda: 100.0)
    source.error = error
    old = current(panel, lambda: 160.0)
    assert (old.data, old.read_at, old.problem) == (1, 100.0, sentence)
    current(panel, lambda: 160.0 + RETRY_SECONDS - 0.1)
    assert source.reads == 2, "it is not asked again at once"
    source.error = None
    again = current(panel, lambda: 160.0 + RETRY_SECONDS)
    assert (again.data, again.problem) == (3, "")
