"""Structures are tried one after another, each once, and tenants take turns."""

import asyncio
from collections.abc import AsyncIterator
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


class Journal:
    """What has been tried, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "tried")


@pytest.fixture
async def trials(journal: Journal) -> AsyncIterator[StructureTrials]:
    trials = StructureTrials(module="tests.support.workers.scripted_trials")
    vocabulary = Vocabulary(
        tokenizer=str(journal.path), any_whitespace=True, cpu_seconds=1, memory_bytes=1
    )
    await trials.start(vocabulary)
    yield trials
    await trials.stop()


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
