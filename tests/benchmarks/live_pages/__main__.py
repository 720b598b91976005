"""Twenty open pages beside 64 streams on the real stack: `make bench-live-pages`.

Half of the pages are operators' dashboards, half overviews of two organisations. The same load
with them and without, in turns, on one gateway process that answers both. Pages ask as browsers do,
every two seconds what is live and every ten what is of a range of days; no browser runs, which
would take the machine's cores that a reader's own has.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Final

from tests.benchmarks.live_pages.pages import Asked, dashboards, open_pages, overview
from tests.benchmarks.live_pages.report import BOTH, WITH, WITHOUT, Verdict, markdown
from tests.benchmarks.load.generator import load_generator
from tests.benchmarks.load.rounds import Round, RoundResult
from tests.benchmarks.machine import describe
from tests.benchmarks.measured import Side, compare
from tests.benchmarks.sides import penstock
from tests.benchmarks.targets import bars
from tests.support.live_stack import run_live_stack
from tests.support.places import ROOT

PROMPTS: Final = ["What is Penstock?", "What is a tenant?", "What is a lease?"]
STREAMS, PAGES, TOKENS = 64, 20, 128
NAME: Final = "live-pages"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="of each side")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--requests", type=int, default=8 * STREAMS, help="a round")
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    bars.add_option(parser)
    options = parser.parse_args(arguments)
    machine = describe()
    asked = Asked()

    def make_round(number: int) -> Round:
        streams = options.streams
        requests = options.requests if number else 2 * streams
        return Round(streams=streams, requests=requests, max_tokens=TOKENS, prompts=PROMPTS)

    with (
        run_live_stack(PENSTOCK_MAX_NUM_SEQS=str(STREAMS)) as stack,
        load_generator() as generator,
    ):
        without = penstock(stack, generator, name=WITHOUT)
        for api_key in (stack.acme_key, stack.globex_key):
            stack.ask(api_key, PROMPTS[0])  # before the first answer there is another overview
        owners = (stack.acme_owner, stack.globex_owner)
        of_tenants = cycle([overview(stack.public_url, owner) for owner in owners])
        found = dashboards(stack.public_url, stack.operator)
        of_operators = cycle(found)
        pages = [next(of_tenants if place % 2 else of_operators) for place in range(options.pages)]

        def with_pages(round_: Round) -> RoundResult:
            with open_pages(stack.public_url, pages) as of_round:
                result = without.run(round_)
            asked.milliseconds += of_round.milliseconds
            asked.bytes += of_round.bytes
            return result

        sides: list[Side] = [without, replace(without, name=WITH, run=with_pages)]
        comparison = compare(BOTH, sides, make_round, rounds=options.rounds)
    verdict = Verdict.of(comparison, asked)
    page = options.out / f"{NAME}.md"
    options.out.mkdir(parents=True, exist_ok=True)
    page.write_text(markdown(comparison, verdict, asked, machine), encoding="utf-8")
    figures = {"machine": machine, "pages": len(pages), "dashboards": len(found)}
    rounds = {
        name: [
            {"tokens_per_second": each.result.tokens_per_second,
             "ttft_p50_ms": each.result.ttft_p50_ms, "ttft_p99_ms": each.result.ttft_p99_ms}
            for each in measurements
        ]
        for name, measurements in comparison.sides.items()
    }  # fmt: skip
    text = json.dumps(figures | {"verdict": asdict(verdict), "rounds": rounds}, indent=1)
    page.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    print(verdict.sentence)
    print(f"written to {page}; load average {os.getloadavg()[0]:.1f}")
    bars.judge([] if verdict.is_met else ["what the sentence above says"], options)


if __name__ == "__main__":
    main()
