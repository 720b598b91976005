"""`make prove-adapters`: a thousand adapters on one worker, of vLLM and of the simulated engine.

Whole, it takes about half an hour on two cores and writes docs/benchmarks/many-adapters.md; smaller
runs, and those with a bug, write var/benchmarks. Its parts may run one after another (--part): each
finds what the one before has left. Ctrl-C ends the asking; what was answered until then is judged.
Exits with 1 where a bar is not met.
"""

import argparse
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from tests.benchmarks.machine import describe
from tests.benchmarks.many_adapters import traffic
from tests.benchmarks.many_adapters.parts import SLOTS, Sides, answers_alone
from tests.benchmarks.many_adapters.report import Proof, keep, kept
from tests.benchmarks.many_adapters.verdict import References
from tests.benchmarks.many_adapters.worker import BUGS
from tests.support.places import ROOT

TENANTS, ADAPTERS, REQUESTS, LOADS = 50, 1000, 10_000, 10_000
PARTS: Final = ("alone", "without", "with", "loads")


def main() -> None:
    arguments = _arguments()
    sizes = (arguments.tenants, arguments.adapters, arguments.requests, arguments.loads)
    is_whole = sizes == (TENANTS, ADAPTERS, REQUESTS, LOADS) and not arguments.bug
    file = ROOT / ("docs" if is_whole else "var") / "benchmarks" / "many-adapters.json"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: traffic.STOPPED.set())
    failures = []
    for engine in arguments.engine:
        uvloop.run(prove(engine, arguments, file))
        if proof := kept(file).get(engine):
            failures += [f"{engine}: {each}" for each in (*proof.failures(), *proof.examples())]
    print("\n" + file.with_suffix(".md").read_text(encoding="utf-8"))
    print("\n".join(failures) or "All bars are met.")
    sys.exit(1 if failures else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", nargs="+", choices=sorted(SLOTS), default=["vllm", "sim"])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--adapters", type=int, default=ADAPTERS, help="versions, all tenants'")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--loads", type=int, default=LOADS)
    parser.add_argument("--bug", choices=BUGS, default="", help="a bug that it has to find")
    return parser.parse_args()


async def prove(engine: str, arguments: argparse.Namespace, file: Path) -> None:
    """Prove it of one engine; keep what is found, as soon as it is, in `file`."""
    machine = describe()
    with TemporaryDirectory(prefix="penstock-adapters-") as folder:
        sides = Sides(
            engine=engine,
            folder=Path(folder),
            tenants=arguments.tenants,
            adapters=arguments.adapters,
            bug=arguments.bug,
        )
        references = _references(sides, is_new="alone" in arguments.part)
        proof = Proof(
            machine=machine,
            slots=SLOTS[engine],
            tenants=len(sides.tenants),
            adapter_kib=sides.adapter_kib,
            closest=references.closest(),
            indistinct=len(references.indistinct()),
        )
        if "alone" not in arguments.part and (before := kept(file).get(engine)) is not None:
            proof.without, proof.with_all = before.without, before.with_all
            proof.loads = before.loads
        keep(file, engine, proof)
        asks = traffic.zipf(sides.versions, sides.tenants, arguments.requests)
        if "without" in arguments.part:
            proof.without = await sides.without_adapters(asks, references)
            keep(file, engine, proof)
        if "with" in arguments.part:
            proof.with_all = await sides.with_all_in_memory(asks, references)
            keep(file, engine, proof)
        if "loads" in arguments.part and arguments.loads:
            many = traffic.in_turn(sides.versions, arguments.loads)
            proof.loads = await sides.load_many(many, references)
            keep(file, engine, proof)


def _references(sides: Sides, *, is_new: bool) -> References:
    kept_answers = ROOT / "var" / "many-adapters" / f"{sides.engine}-{len(sides.versions)}"
    return References(sides.versions, answers_alone(sides, kept_answers, is_new=is_new))


if __name__ == "__main__":
    main()
