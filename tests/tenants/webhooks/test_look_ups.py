"""Look-ups of tenants' host names: one tenant's that never end hold up no other's."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tenants.webhooks.look_ups import AT_ONCE, MOST_WAITING, LookUps, TooManyLookUps


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """A name server that does not answer until the test is over."""
    over = threading.Event()
    yield over
    over.set()


def test_names_that_never_answer_hold_up_no_other_owner(silence: threading.Event) -> None:
    look_ups = LookUps()
    for _ in range(AT_ONCE + MOST_WAITING):
        look_ups.submit("acme", silence.wait)
    with pytest.raises(TooManyLookUps):
        look_ups.submit("acme", silence.wait)
    assert look_ups.submit("globex", lambda: "found").result(timeout=5) == "found"


def test_those_of_one_owner_take_their_turn_and_one_that_was_given_up_is_not_made(
    silence: threading.Event,
) -> None:
    look_ups, made = LookUps(), list[str]()
    for _ in range(AT_ONCE):
        look_ups.submit("acme", silence.wait)
    given_up: Future[None] = look_ups.submit("acme", lambda: made.append("given up"))
    last = look_ups.submit("acme", lambda: made.append("last"))
    assert given_up.cancel()
    silence.set()
    last.result(timeout=5)
    assert made == ["last"]


def test_what_a_look_up_raises_is_its_askers_and_the_next_is_made() -> None:
    look_ups = LookUps()
    assert isinstance(look_ups.submit("acme", lambda: 1 // 0).exception(5), ZeroDivisionError)
    assert look_ups.submit("acme", lambda: 1).result(timeout=5) == 1


def test_there_are_so_many_threads_and_no_more(
    silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.webhooks.look_ups.MOST", 3)
    look_ups = LookUps()
    for owner in ("acme", "globex", "initech"):
        look_ups.submit(owner, silence.wait)
    with pytest.raises(TooManyLookUps):
        look_ups.submit("umbrella", silence.wait)
