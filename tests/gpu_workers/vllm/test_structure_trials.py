"""Structures are tried one after another, each once, and tenants take turns."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gpu_workers.vllm.structures.trial import (
    Finding,
    Structure,
    StructureKind,
    Verdict,
    Vocabulary,
    Walk,
)
from gpu_workers.vllm.structures.trials import StructureTrials, TrialsFailed
from gpu_workers.vllm.structures.turns import OwnTrialsAhead
from tests.support.polling import eventually
from tests.support.workers.scripted_trials import gate_of

MOST_OWN_SECONDS = 600.0


class Journal:
    """What has been tried, in order, and the gate that some of it waits for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(gate_of(path))
        self._gate = os.open(gate_of(path), os.O_RDWR)

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    @property
    def names(self) -> list[str]:
        return [line.split()[-1] for line in self.lines]

    def release(self) -> None:
        """Let one trial end that is held now, or the next that will be."""
        os.write(self._gate, b".")

    def close(self) -> None:
        os.close(self._gate)


class Clock:
    """Goes on by a millisecond whenever it is read, and by more where it is set forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "tried")
    yield journal
    journal.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


Start = Callable[[float], Awaitable[StructureTrials]]


@pytest.fixture
async def start(journal: Journal, clock: Clock) -> AsyncIterator[Start]:
    """Trials by how many seconds a request waits for others of its tenant."""
    async with AsyncExitStack() as stack:

        async def start(most_own_seconds: float) -> StructureTrials:
            trials = StructureTrials(
                module="tests.support.workers.scripted_trials",
                most_own_seconds=most_own_seconds,
                clock=clock,
            )
            vocabulary = Vocabulary(
                tokenizer=str(journal.path), any_whitespace=True, cpu_seconds=1, memory_bytes=1
            )
            await trials.start(vocabulary)
            stack.push_async_callback(trials.stop)
            return trials

        yield start


@pytest.fixture
async def trials(start: Start) -> StructureTrials:
    return await start(MOST_OWN_SECONDS)


def a(text: str, kind: StructureKind = StructureKind.JSON) -> Structure:
    return Structure(kind, text)


async def test_a_structure_is_tried_once(trials: StructureTrials, journal: Journal) -> None:
    first = await trials.verdict("acme", a("compiled"))
    assert first == Verdict(Finding.COMPILED)
    assert await trials.verdict("globex", a("compiled")) == first
    both = await asyncio.gather(*(trials.verdict("acme", a("too_slow")) for _ in "ab"))
    assert [each.finding for each in both] == [Finding.TOO_SLOW] * 2
    assert journal.lines == ["compiled", "too_slow"]


async def test_the_same_text_of_another_kind_is_another_structure(
    trials: StructureTrials, journal: Journal
) -> None:
    for kind in StructureKind:
        await trials.verdict("acme", a("invalid", kind))
    assert journal.lines == ["invalid"] * len(StructureKind)


async def test_tenants_take_turns(trials: StructureTrials, journal: Journal) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(trials.verdict("acme", a(f"compiled acme-{number}")))
        group.create_task(trials.verdict("globex", a("compiled globex-0")))
    tried = [line.split()[1] for line in journal.lines]
    assert tried == ["acme-0", "globex-0", "acme-1", "acme-2"]


async def test_what_got_no_cpu_is_tried_anew_for_whoever_asks_again(
    trials: StructureTrials, journal: Journal
) -> None:
    for _ in range(2):
        with pytest.raises(TrialsFailed):
            await trials.verdict("acme", a("starved"))
    assert journal.lines == ["starved", "starved"]


class Asking:
    """The requests of a test, by what it calls their structures."""

    def __init__(self, trials: StructureTrials, journal: Journal) -> None:
        self._trials = trials
        self._journal = journal

    async def ask(self, tenant_id: str, text: str) -> asyncio.Task[Verdict]:
        """Return a request that waits for its structure to be tried."""
        asking = asyncio.create_task(self._trials.verdict(tenant_id, a(text)))
        await asyncio.sleep(0)
        return asking

    async def until_begun(self, name: str) -> None:
        await eventually(lambda: name in self._journal.names)


async def test_an_expensive_trial_holds_up_another_tenant_once(
    trials: StructureTrials, journal: Journal, clock: Clock
) -> None:
    asking = Asking(trials, journal)
    flood = [await asking.ask("acme", "compiled held acme-0")]
    flood += [await asking.ask("acme", f"compiled acme-{number}") for number in (1, 2)]
    await asking.until_begun("acme-0")
    victims = [await asking.ask("globex", f"compiled globex-{number}") for number in range(3)]
    clock.now += 10
    journal.release()
    await asyncio.gather(*flood, *victims)
    assert journal.names == ["acme-0", "globex-0", "globex-1", "globex-2", "acme-1", "acme-2"]


async def test_who_asks_one_after_another_has_no_more_turns_than_who_asks_at_once(
    trials: StructureTrials, journal: Journal, clock: Clock
) -> None:
    asking = Asking(trials, journal)
    first = await asking.ask("acme", "compiled held acme-0")
    await asking.until_begun("acme-0")
    victims = [await asking.ask("globex", "compiled held globex-0")]
    victims += [await asking.ask("globex", "compiled globex-1")]
    clock.now += 10
    journal.release()
    await first
    await asking.until_begun("globex-0")
    second = await asking.ask("acme", "compiled acme-1")
    clock.now += 1
    journal.release()
    await asyncio.gather(second, *victims)
    assert journal.names == ["acme-0", "globex-0", "globex-1", "acme-1"]


async def test_who_waits_too_long_for_trials_of_its_own_tenant_is_refused(
    start: Start, journal: Journal
) -> None:
    asking = Asking(await start(0.0), journal)
    first = await asking.ask("acme", "compiled held acme-0")
    await asking.until_begun("acme-0")
    others = [await asking.ask("acme", f"compiled acme-{number}") for number in (1, 2)]
    for number, other in enumerate(others, 1):
        with pytest.raises(OwnTrialsAhead) as refused:
            await other
        assert 1 <= refused.value.ahead <= number
    journal.release()
    assert (await first).finding is Finding.COMPILED
    again = await asking.ask("acme", "compiled acme-1")
    assert (await again).finding is Finding.COMPILED
    assert journal.names == ["acme-0", "acme-1"]


async def test_time_that_others_take_refuses_nobody(
    trials: StructureTrials, journal: Journal, clock: Clock
) -> None:
    asking = Asking(trials, journal)
    first = await asking.ask("globex", "compiled held globex-0")
    await asking.until_begun("globex-0")
    one, two, three = [
        await asking.ask("acme", f"compiled held acme-{number}") for number in range(3)
    ]
    clock.now += 10 * MOST_OWN_SECONDS
    journal.release()
    await first
    await asking.until_begun("acme-0")
    assert not any(each.done() for each in (one, two, three))
    clock.now += MOST_OWN_SECONDS
    journal.release()
    await one
    with pytest.raises(OwnTrialsAhead) as refused:
        await three
    assert refused.value.ahead == 2
    journal.release()
    assert (await two).finding is Finding.COMPILED


async def test_a_tenant_with_nothing_of_its_own_ahead_waits_for_its_turn(
    start: Start, journal: Journal
) -> None:
    asking = Asking(await start(0.0), journal)
    first = await asking.ask("acme", "compiled held acme-0")
    await asking.until_begun("acme-0")
    victim = await asking.ask("globex", "compiled globex-0")
    same = await asking.ask("globex", "compiled globex-0")
    with pytest.raises(OwnTrialsAhead):
        await (await asking.ask("acme", "compiled acme-1"))
    journal.release()
    await asyncio.gather(first, victim, same)
    assert journal.names == ["acme-0", "globex-0"]


async def test_what_another_tenant_asks_too_comes_when_its_turn_comes(
    trials: StructureTrials, journal: Journal
) -> None:
    asking = Asking(trials, journal)
    flood = [await asking.ask("acme", "compiled held acme-0")]
    await asking.until_begun("acme-0")
    flood += [await asking.ask("acme", f"compiled {name}") for name in ("acme-1", "popular")]
    victim = await asking.ask("globex", "compiled popular")
    journal.release()
    await asyncio.gather(*flood, victim)
    assert journal.names == ["acme-0", "popular", "acme-1"]


async def test_what_nobody_waits_for_any_more_is_not_begun(
    trials: StructureTrials, journal: Journal
) -> None:
    asking = Asking(trials, journal)
    first = await asking.ask("acme", "compiled held acme-0")
    await asking.until_begun("acme-0")
    left = [await asking.ask("acme", f"compiled {name}") for name in ("acme-1", "shared", "twice")]
    stay = [await asking.ask("globex", "compiled shared")]
    stay += [await asking.ask("acme", "compiled twice")]
    for each in left:
        each.cancel()
    await asyncio.wait(left)
    journal.release()
    await asyncio.gather(first, *stay)
    assert sorted(journal.names) == ["acme-0", "shared", "twice"]


async def test_the_verdict_of_what_has_begun_is_kept(
    trials: StructureTrials, journal: Journal
) -> None:
    asking = Asking(trials, journal)
    left = await asking.ask("acme", "compiled held acme-0")
    await asking.until_begun("acme-0")
    left.cancel()
    await asyncio.wait([left])
    journal.release()
    await trials.verdict("globex", a("compiled globex-0"))
    await trials.verdict("globex", a("compiled held acme-0"))
    assert journal.names == ["acme-0", "globex-0"]


async def test_who_gives_up_leaves_the_trial_to_the_others(trials: StructureTrials) -> None:
    leaver = asyncio.create_task(trials.verdict("acme", a("compiled")))
    stayer = asyncio.create_task(trials.verdict("acme", a("compiled")))
    await asyncio.sleep(0)
    leaver.cancel()
    assert (await stayer).finding is Finding.COMPILED


async def test_a_process_that_dies_fails_its_trial_and_is_replaced(
    trials: StructureTrials,
) -> None:
    with pytest.raises(TrialsFailed):
        await trials.verdict("acme", a("die"))
    assert (await trials.verdict("acme", a("compiled"))).finding is Finding.COMPILED


def test_what_grows_is_projected_to_the_tokens_that_are_asked_for() -> None:
    steady = Walk(tokens=500, slowest=0.004, late=0.002, grows=False)
    growing = Walk(tokens=500, slowest=0.004, late=0.002, grows=True)
    assert steady.projected(5_000) == growing.projected(500) == 0.004
    assert growing.projected(5_000) == pytest.approx(0.2)
