"""What was found, as JSON that grows by one engine at a time, and as Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.benchmarks.figures import table
from tests.benchmarks.many_adapters.verdict import Verdict

MIB: Final = 1 << 20
MOST_ABOVE_MIB: Final = 1536
MOST_GROWTH_MIB: Final = 100
# A process grows into its work: allocators keep what a first round needed.
SETTLED_AFTER: Final = 0.1


class Loads(msgspec.Struct, kw_only=True):
    """Requests that needed a load each, where `in_memory` of the adapters are loaded at once.
    `memory_mib`: (requests so far, memory of the worker)."""

    in_memory: int
    loads: int
    verdict: Verdict
    memory_mib: list[tuple[int, float]]

    @property
    def growth_mib(self) -> float:
        """Return how much more there ever was than when it had settled."""
        last, _ = self.memory_mib[-1]
        settled = [mib for done, mib in self.memory_mib if done >= SETTLED_AFTER * last]
        return max(settled) - settled[0]


class Measured(msgspec.Struct, kw_only=True):
    """Requests on one engine, how many adapters were loaded for them, and the memory of the worker
    and its processes after them."""

    verdict: Verdict
    loads: int
    memory_mib: float


class Proof(msgspec.Struct, kw_only=True):
    """All of one engine: the requests to the base alone `without` adapters, those `with_all` of
    them in memory, then `loads`; None is still to come. `closest` is how near the answers of two
    adapters come to each other, None where their tokens always differ; `indistinct` how many pairs
    nothing tells apart."""

    machine: dict[str, str]
    slots: int
    tenants: int
    adapter_kib: float
    closest: float | None
    indistinct: int
    without: Measured | None = None
    with_all: Measured | None = None
    loads: Loads | None = None

    @property
    def above_mib(self) -> float | None:
        if self.without is None or self.with_all is None:
            return None
        return self.with_all.memory_mib - self.without.memory_mib

    def failures(self) -> list[str]:
        """Return what it does not show."""
        found = {"pairs of adapters that nothing tells apart": self.indistinct}
        if self.without is not None:
            found |= _problems(self.without.verdict, "without adapters")
        if self.with_all is not None:
            verdict = self.with_all.verdict
            found |= _problems(verdict, "with all in memory")
            found["adapters that were not all in memory"] = verdict.adapters - self.with_all.loads
        if self.above_mib is not None:
            found[f"MiB above {MOST_ABOVE_MIB}"] = round(self.above_mib - MOST_ABOVE_MIB)
        if self.loads is not None:
            found |= _problems(self.loads.verdict, "while each needed a load")
            over = round(self.loads.growth_mib - MOST_GROWTH_MIB)
            found[f"MiB of growth above {MOST_GROWTH_MIB}"] = over
        return [f"{count} {what}" for what, count in found.items() if count > 0]

    def examples(self) -> list[str]:
        """Return some of whose answers were got, where they were others'."""
        parts = (self.without, self.with_all, self.loads)
        return [each for part in parts if part is not None for each in part.verdict.examples]


def _problems(verdict: Verdict, when: str) -> dict[str, int]:
    return {
        f"answers that were not their adapter's own, {when}": verdict.wrong,
        f"base answers that changed, {when}": verdict.base_changed,
        f"prefix-cache hits of others, {when}": verdict.cached_of_others,
        f"requests without an answer, {when}": sum(verdict.failed.values()),
    }


Proofs = dict[str, Proof]


def kept(file: Path) -> Proofs:
    return msgspec.json.decode(file.read_bytes(), type=Proofs) if file.is_file() else {}


def keep(file: Path, engine: str, proof: Proof) -> None:
    """Add what was found of an engine to a file, and write all that is in it as Markdown beside."""
    file.parent.mkdir(parents=True, exist_ok=True)
    proofs = kept(file) | {engine: proof}
    file.write_bytes(msgspec.json.format(msgspec.json.encode(proofs)) + b"\n")
    file.with_suffix(".md").write_text(markdown(proofs), encoding="utf-8")


def markdown(proofs: Proofs) -> str:
    ordered = sorted(proofs.items(), reverse=True)
    parts = [_INTRODUCTION, table(_rows(ordered))]
    for engine, proof in ordered:
        if proof.loads is not None:
            parts.append(f"## {engine}: memory over {proof.loads.loads:,} loads")
            parts.append(table([("requests", "MiB"), *_memory(proof.loads)]))
        machine = ", ".join(f"{name} {value}" for name, value in proof.machine.items())
        parts.append(f"Machine: {machine}.")
    return "\n\n".join(parts) + "\n"


_INTRODUCTION: Final = f"""\
# A thousand adapters on one worker

What `make prove-adapters` wrote. All tenants ask the same few questions, whose beginning is longer
than a block of the KV cache; requests go through a gateway's use case, dispatch and one worker.
What each adapter answers alone was asked before, of an engine with one slot, one adapter and one
request at a time; what the base answers, of an engine without adapters. Answers are compared token
by token with their log-probabilities; the simulated engine has none, and caches no prefix. Some
tenants have adapters of the same weights, whose answers are the same and whose cache must not be.

Bars: no wrong answer; no prefix-cache hit across adapters, versions or tenants; all in memory at
most {MOST_ABOVE_MIB} MiB above the same engine without; within {MOST_GROWTH_MIB} MiB over all loads
once a tenth of them is done. `--bug` plants one that the proof has to find
(`tests/benchmarks/many_adapters/worker.py`)."""


def _rows(proofs: Sequence[tuple[str, Proof]]) -> list[tuple[str, ...]]:
    columns = [_column(proof) for _, proof in proofs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [("", *(engine for engine, _ in proofs))]
    return rows + [(name, *(column.get(name, "") for column in columns)) for name in names]


def _column(proof: Proof) -> dict[str, str]:
    column = {
        "tenants, slots": f"{proof.tenants}, {proof.slots}",
        "an adapter's file, KiB": f"{proof.adapter_kib:,.0f}",
        "the two closest adapters differ by": (
            "a token" if proof.closest is None else f"{proof.closest:.1e}"
        ),
    }
    if (side := proof.with_all) is not None:
        column["adapter versions, all in memory"] = f"{side.loads:,}"
        column |= _verdict(side.verdict, "")
        column["MiB with all in memory"] = f"{side.memory_mib:,.0f}"
    if (side := proof.without) is not None:
        column["without adapters: as many requests of the base"] = f"{side.verdict.of_base:,}"
        column["without adapters: answers that changed"] = f"{side.verdict.base_changed}"
        column["without adapters: seconds"] = f"{side.verdict.seconds:,.0f}"
        column["without adapters: MiB"] = f"{side.memory_mib:,.0f}"
    if proof.above_mib is not None:
        column["MiB above that with all in memory"] = f"{proof.above_mib:,.0f}"
    if (loads := proof.loads) is not None:
        column["then: loads"] = f"{loads.loads:,}"
        column["then: adapters in memory at once"] = f"{loads.in_memory}"
        column |= _verdict(loads.verdict, "then: ")
        column["then: MiB of growth"] = f"{loads.growth_mib:,.0f}"
    return column


def _verdict(verdict: Verdict, when: str) -> dict[str, str]:
    column = {
        "requests of adapters": f"{verdict.of_adapters:,}",
        "requests of the base between": f"{verdict.of_base:,}",
        "answers that were not their adapter's": f"{verdict.wrong}",
        "base answers that changed": f"{verdict.base_changed}",
        "requests without an answer": f"{sum(verdict.failed.values())}",
        "near ties": f"{verdict.near_ties}",
        "largest difference of a log-probability": f"{verdict.deviation:.1e}",
        "prefix-cache hits, rightful": f"{verdict.cached:,}",
        "prefix-cache hits of others": f"{verdict.cached_of_others}",
        "seconds": f"{verdict.seconds:,.0f}",
    }
    return {when + name: cell for name, cell in column.items()}


def _memory(loads: Loads) -> list[tuple[str, str]]:
    return [(f"{done:,}", f"{mib:,.0f}") for done, mib in loads.memory_mib]
