"""How long it takes from an upload to its first token, and what a cold adapter adds to one."""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from tests.benchmarks.adapters.bringing import READY, AdapterOwner, Asker, FirstToken, Version
from tests.benchmarks.adapters.variants import packed, write_variant
from tests.support.stack_addresses import LiveStack

PROMPT: Final = "When are you open?"
TOKENS: Final = 4
# Of those that keep a worker's only slot until each worker has begun one.
LONG: Final = 1000
SLUG: Final = "measured"


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Milliseconds of one upload, from its first request to its first token on the last of the
    workers. `queue` ends when the version is seen to be looked at, `validation` when it is ready,
    `publication` with the first request that is taken."""

    upload: float
    queue: float
    validation: float
    publication: float
    first_token: float

    @property
    def total(self) -> float:
        return self.upload + self.queue + self.validation + self.publication + self.first_token


@dataclass(kw_only=True)
class Latencies:
    """Of one kind of pool: what each upload took; the time to the first token (ms) where the
    adapter comes from the store, from the worker's disk, and where it is in a slot; and what the
    control plane and workers say of themselves (seconds)."""

    stages: list[Stages] = field(default_factory=list)
    store: list[float] = field(default_factory=list)
    disk: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    jail_seconds: list[float] = field(default_factory=list)
    fetch_and_load_seconds: list[float] = field(default_factory=list)
    load_seconds: list[float] = field(default_factory=list)
    workers: int = 0

    @property
    def from_store_ms(self) -> float:
        """Return what an adapter from the store adds to the time to the first token, of medians."""
        return median(self.store) - median(self.resident)

    @property
    def from_disk_ms(self) -> float:
        return median(self.disk) - median(self.resident)


def measure(
    stack: LiveStack, folder: Path, *, workers: int, uploads: int, sweeps: int
) -> Latencies:
    """Bring adapters one after the other, each asked on every worker as soon as it is there, then
    go round them: so many that one that is asked has left memory each time, and is asked again."""
    found = Latencies()
    owner = AdapterOwner(stack.url, stack.acme_key, stack.model, SLUG)
    askers = [Asker(stack.url, stack.acme_key) for _ in range(workers)]
    try:
        _bring(owner, askers, _archives(folder, 1, first=uploads + 1)[0])  # what is lazy wakes up
        versions = []
        for archive in _archives(folder, uploads):
            version, stages, firsts = _bring(owner, askers, archive)
            versions.append(version)
            found.stages.append(stages)
            found.store.append(firsts[0].ttft_ms)
            found.resident.append(_ask(askers[0], version))
        for _ in range(sweeps):
            for version in versions:
                found.disk.append(_ask(askers[0], version))
                found.resident.append(_ask(askers[0], version))
    finally:
        owner.close()
        for asker in askers:
            asker.close()
    _read_logs(stack, found)
    rows = stack.usage_rows(f"adapter = '{owner.name}'")
    found.workers = len({row["worker_id"] for row in rows if row["worker_id"]})
    return found


def _archives(folder: Path, count: int, *, first: int = 1) -> list[bytes]:
    return [packed(write_variant(number, folder)) for number in range(first, first + count)]


def _bring(
    owner: AdapterOwner, askers: Sequence[Asker], archive: bytes
) -> tuple[Version, Stages, list[FirstToken]]:
    """Bring one adapter, and ask it on as many workers as there are askers: they have a slot each,
    and keep it until all have begun. The askers' first tokens are in the order of their coming."""
    began = perf_counter()
    version = owner.bring(archive)
    brought = perf_counter()
    looked_at = owner.wait_until(version, "validating", *READY)
    ready = owner.wait_until(version, *READY)
    have_all_begun = threading.Barrier(len(askers))

    def ask(asker: Asker) -> FirstToken:
        if len(askers) == 1:
            return asker.ask_until_there(version.name, PROMPT, TOKENS)
        return asker.ask_until_there(
            version.name, PROMPT, LONG, and_then=lambda: have_all_begun.wait(60)
        )

    with ThreadPoolExecutor(len(askers)) as threads:
        firsts = sorted(threads.map(ask, askers), key=lambda first: first.at)
    taken = min(first.asked_at for first in firsts)
    stages = Stages(
        upload=1000 * (brought - began),
        queue=1000 * (looked_at - brought),
        validation=1000 * (ready - looked_at),
        publication=1000 * (taken - ready),
        first_token=1000 * (firsts[-1].at - taken),
    )
    return version, stages, firsts


def _ask(asker: Asker, version: Version) -> float:
    first = asker.ask(version.name, PROMPT, TOKENS)
    if first is None:
        raise RuntimeError(f"{version.name} is not there any more")
    return first.ttft_ms


def _read_logs(stack: LiveStack, found: Latencies) -> None:
    for event in _events(stack.var_folder / "log" / "adapters.log"):
        if event.get("event") == "adapter_validated":
            found.jail_seconds.append(event["seconds"])
    for log in (stack.var_folder / "log").glob("worker-*.log"):
        for event in _events(log):
            if event.get("event") == "adapter_loaded":
                kind = found.fetch_and_load_seconds if event["is_fetched"] else found.load_seconds
                kind.append(event["seconds"])


def _events(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that are JSON: other people's are not."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue
