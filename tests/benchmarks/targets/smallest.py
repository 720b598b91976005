"""Each target of the Makefile in its smallest form: seconds, no figures, and nothing in docs/.

A target stands in one of two tables: STARTED, with what makes it small and what it prints at its
end, or NOT_STARTED, with the reason.
"""

import re
from dataclasses import dataclass
from typing import Final

from tests.support.places import ROOT

MAKEFILE: Final = ROOT / "Makefile"
# Stands for a folder of the test's own.
OUT: Final = "{out}"


@dataclass(frozen=True, kw_only=True)
class Smallest:
    """`arguments` are those of the program, `variables` further ones of make. What it prints at its
    end contains `prints`. With `needs_chromium` there is nothing to start where there is none. One
    that `is_dear` has a stack of its own, and takes minutes where the cores are shared."""

    arguments: str = ""
    variables: tuple[str, ...] = ()
    prints: str
    needs_chromium: bool = False
    is_dear: bool = False

    def command(self, target: str, out: str) -> list[str]:
        arguments = self.arguments.replace(OUT, out)
        return ["make", target, f"ARGS={arguments}", *self.variables]


STARTED: Final[dict[str, Smallest]] = {
    "test-clock": Smallest(
        arguments="--shift week tests/tenants/alerts/test_attention.py", prints=" passed"
    ),
    "bench": Smallest(
        arguments="--part serving --streams 16 --door chat --prompts short --cores shared"
        " --sides penstock --rounds 1 --out {out}",
        prints="Written to ",
        is_dear=True,
    ),
    "bench-adapters": Smallest(
        arguments="--engines sim --stores folder --uploads 2 --sweeps 1 --out {out}",
        prints="Written to ",
    ),
    "bench-front": Smallest(
        arguments="--streams 1 --tokens 64 --step-ms 0 --rounds 1 --idle-seconds 1 --out {out}",
        prints="## CPU by process",
        is_dear=True,
    ),
    "bench-gateway": Smallest(
        arguments="--only answer --rounds 1 --websockets 10 --idle-seconds 1",
        prints="websockets",
        is_dear=True,
    ),
    "bench-keys": Smallest(
        arguments="--tenants 5 --keys 20 --no-bars", prints="GET /v1/models, PostgreSQL stopped: "
    ),
    "bench-usage": Smallest(
        arguments="--rows 2000 --tenants 5 --records 200 --no-bars", prints="fsck of usage"
    ),
    "bench-refusals": Smallest(arguments="--rows 2000 --tenants 5 --no-bars", prints="added: "),
    "bench-pages": Smallest(
        arguments="--rows 2000 --tenants 5 --rounds 1 --only overview --no-bars",
        prints=" kB, ",
        needs_chromium=True,
    ),
    "bench-month-end": Smallest(
        arguments="--rows 2000 --tenants 5 --no-bars", prints="month end: "
    ),
    "bench-fsck": Smallest(
        arguments="--entries 2000 --rows 2000 --tenants 5 --no-bars", prints="nightly at "
    ),
    "bench-fairness": Smallest(
        arguments="--quick --only weights", prints="weighted shares within 2%: 1 of 1"
    ),
    "bench-live-fairness": Smallest(
        arguments="--rounds 1 --samples 10",
        prints="ratio of the p99",
        is_dear=True,
    ),
    "bench-live-pages": Smallest(
        arguments="--rounds 1 --streams 4 --requests 8 --pages 2 --no-bars --out {out}",
        prints="written to ",
        is_dear=True,
    ),
    "bench-idle-pool": Smallest(arguments="--engine sim --requests 10", prints="  p99 "),
    "bench-dispatch": Smallest(
        arguments="--tenants 50 --queued 6000 --workers 20 40 --adapters 400 --rounds 1",
        prints="| post of a load |",
    ),
    "bench-scale": Smallest(
        arguments="--rounds 1 --streams 32 --requests 32", prints="tenant with a reservation"
    ),
    "bench-cells": Smallest(arguments="--only 10", prints="## 10 workers in 2 cells"),
    "bench-credit": Smallest(
        arguments="-k 'credit and 100_at_once-5'", variables=("CREDIT_ROUNDS=1",), prints="1 passed"
    ),
    "bench-extremes": Smallest(
        arguments="--requests 10 --no-bars",
        prints="victims: ",
        is_dear=True,
    ),
    "prove-adapters": Smallest(
        arguments="--engine sim --tenants 2 --adapters 4 --requests 20 --loads 8",
        prints="All bars are met.",
    ),
    "prove-gpu": Smallest(  # where there is none, on the CPU
        arguments="--part adapters --streams 1 --tokens 32 --rounds 1 --out {out}/gpu.json",
        prints="longest_gap_of_a_stream_ms",
        is_dear=True,
    ),
    "planted-bugs": Smallest(
        arguments="--only 'a finish that is repeated'", prints="1 of 1 planted bugs found"
    ),
    "chaos": Smallest(arguments="cancel --no-bars", prints=" s in all."),
    "errands": Smallest(
        arguments="--only README", prints="| README to a first token | 0", needs_chromium=True
    ),
    "security": Smallest(
        arguments="--only 'by all of its characters'", prints="1 of 1 promises hold."
    ),
    "fuzz-api": Smallest(
        variables=("FUZZ_CASES=3", "FUZZ_INFERENCE_CASES=3", "FUZZ_SEED=1"), prints=" passed"
    ),
    # With the pages of the admin, of which axe shall find nothing either.
    "screenshots": Smallest(
        arguments="--small switcher docs-api admin-", prints=" pictures in ", needs_chromium=True
    ),
}

NOT_STARTED: Final[dict[str, str]] = {
    "up": "it is the developer's own stack; tests/local_stack starts the same one elsewhere",
    "down": "it ends the developer's own stack",
    "status": "it tells of the developer's own stack",
    "shell": "it waits for somebody to type, in the developer's own stack",
    "test": "it is the suite itself",
    "test-all": "it is the suite itself",
    "test-dear": "it is the suite itself",
    "check": "it stands beside the suite in CI",
    "environments": "each target that is started begins with it",
    "newest-engine": "`make test-all` begins with it; it asks the package index",
    "audit": "`make test-all` begins with it",
    "lock": "it needs the package index, and writes the lock files",
    "demo-traffic": "it asks the developer's own stack; tests/acceptance plays a minute of it",
    "demo-model": "it trains for long and replaces the demo model; tests/gpu_workers holds that",
    "demo-adapters": "it trains for long and replaces the demo adapters; their tests hold those",
}


def targets(makefile: str) -> set[str]:
    """Return the targets that a Makefile declares as .PHONY."""
    joined = makefile.replace("\\\n", " ")
    lists = re.findall(r"^\.PHONY:(.*)$", joined, re.MULTILINE)
    return {name for each in lists for name in each.split()}
