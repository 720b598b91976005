"""`make bench-adapters`: from an upload to its first token, and what a cold adapter adds to one.

On a vLLM worker and on two simulated ones, with a folder as the store and with S3 (moto's server),
each a whole stack. Without arguments it writes docs/benchmarks/adapter-latency.md, in about a
quarter of an hour on two cores; a part of it goes to var/benchmarks.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.adapters import report
from tests.benchmarks.adapters.latency import Latencies, measure
from tests.benchmarks.machine import describe
from tests.support.blobs.s3_server import CREDENTIALS, s3_server
from tests.support.live_stack import run_live_stack
from tests.support.places import ROOT
from tests.support.stack_addresses import LiveStack

UPLOADS, SWEEPS = 20, 3
# What is asked in turn then finds no room, and has left memory by its next turn.
IN_MEMORY = 4
ENGINES = {"vllm": 1, "sim": 2}
STORES = ("folder", "s3")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One kind of pool, with so many workers."""

    engine: str
    store: str

    @property
    def workers(self) -> int:
        return ENGINES[self.engine]

    @property
    def name(self) -> str:
        workers = {"vllm": "a vLLM worker", "sim": "two simulated workers"}[self.engine]
        return f"{workers}, {'a folder' if self.store == 'folder' else 'S3'}"


def main() -> None:
    arguments = _arguments()
    pools = [
        Pool(engine=engine, store=store)
        for store in arguments.stores
        for engine in arguments.engines
    ]
    is_whole = (
        len(pools) == len(ENGINES) * len(STORES)
        and arguments.uploads >= UPLOADS
        and arguments.sweeps >= SWEEPS
    )
    out = arguments.out or ROOT / ("docs" if is_whole else "var") / "benchmarks"
    machine = describe()
    found: dict[str, Latencies] = {}
    for pool in pools:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, running(pool) as at:
            found[pool.name] = measure(
                at,
                Path(folder),
                workers=pool.workers,
                uploads=arguments.uploads,
                sweeps=arguments.sweeps,
            )
        print(report.line(pool.name, found[pool.name]), flush=True)
        page = report.write(out, found, machine)  # what is cut short leaves what it has
    print("\n" + report.markdown(found, machine))
    print(f"Written to {page}.")


@contextmanager
def running(pool: Pool) -> Iterator[LiveStack]:
    """Run a stack with such a pool until the block ends."""
    environ = {
        "PENSTOCK_WORKER_ENGINE": pool.engine,
        "PENSTOCK_ADAPTERS_IN_MEMORY": str(IN_MEMORY),
        "PENSTOCK_LOG_FORMAT": "json",
        "PENSTOCK_API_CALLS_PER_MINUTE": "10000",  # whoever waits here asks often
    }
    if pool.workers > 1:
        environ["PENSTOCK_WORKER_SLOTS"] = "1"  # each of two requests then has a worker of its own
    with ExitStack() as exits:
        if pool.store == "s3":
            environ["PENSTOCK_BLOB_STORE_URL"] = exits.enter_context(s3_server()).url
            environ |= {f"AWS_{name.upper()}": value for name, value in CREDENTIALS.items()}
        yield exits.enter_context(run_live_stack(pool.workers, **environ))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--uploads", type=int, default=UPLOADS, help="more than are in memory")
    parser.add_argument("--sweeps", type=int, default=SWEEPS)
    parser.add_argument("--out", type=Path, help="the folder of the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
