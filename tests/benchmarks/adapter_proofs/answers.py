"""Greedy answers of adapters beside PEFT's and those of vLLM's own server; about ten minutes.

    python -m tests.benchmarks.adapter_proofs.answers [--prompts 50] [--out FILE]

Without --prompts it writes docs/benchmarks/adapter_answers.md. Fails where an answer differs and
it was no near-tie (`tests/support/greedy_answers/proof.py` says who is asked, and how).
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.figures import table
from tests.benchmarks.machine import describe
from tests.support.greedy_answers.compared import NEAR_TIE, Verdict
from tests.support.greedy_answers.proof import AT_ONCE, MADE, MAX_TOKENS, SLOTS, Row, prove
from tests.support.places import ROOT

PROMPTS: Final = 50
REPORT: Final = ROOT / "docs" / "benchmarks" / "adapter_answers.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or (REPORT if arguments.prompts >= PROMPTS else None)
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="penstock-answers-") as folder:
        rows = prove(Path(folder), arguments.prompts)
    text = report(rows, machine)
    print(text)
    if out is not None:
        out.write_text(text)
        print(f"Written to {out}.")
    if not all(row.holds for row in rows):
        sys.exit("An answer differs where it was no near-tie.")


def report(rows: Sequence[Row], machine: dict[str, str]) -> str:
    """Return the figures as a page of Markdown."""
    head = ["adapter", "prompts", "tokens", "unlike the base's", "PEFT", "vLLM", "vLLM, streamed"]
    body = [
        [
            row.adapter,
            f"{row.prompts:,}",
            f"{row.tokens:,}",
            f"{row.unlike_base:,}",
            *(_shown(each) for each in (row.peft, row.vllm, row.plain)),
            f"{row.largest_gap:.1e}",
        ]
        for row in rows
    ]
    return "\n".join(
        [
            "# Adapters' answers beside PEFT's and vLLM's own server's",
            "",
            "Written by `python -m tests.benchmarks.adapter_proofs.answers`. All sides compute in"
            f" float32 and answer greedily, at most {MAX_TOKENS} tokens. Penstock is asked through"
            f" its gateway, {AT_ONCE} requests at once of all adapters and the base in turns, with"
            f" {SLOTS} slots for the {len(rows) - 1} adapters. `acme` and `globex` are the demo's;"
            f" {' and '.join(f'`{name}`' for name in MADE)} were made by PEFT and uploaded as it"
            " saves them (`tests/support/greedy_answers/proof.py`).",
            "",
            "The last three columns count answers: equal, near-ties, different. *PEFT* is"
            " transformers with PEFT, one prompt at a time, compared token by token. *vLLM* is its"
            " own server with `--lora-modules`, compared by tokens, text, finish reason and usage;"
            " *streamed* by what a plain client sees of a stream: text, finish reason and usage. A"
            " near-tie is an answer that parts where the log-probabilities of both tokens are"
            f" closer than {NEAR_TIE:g}. The last figure is the most by which Penstock's"
            " log-probability of a token is another than PEFT's.",
            "",
            table([[*head, "largest difference"], *body]),
            "",
            table([["machine", ""], *([name, value] for name, value in machine.items())]),
            "",
        ]
    )


def _shown(verdicts: dict[Verdict, int]) -> str:
    return ", ".join(str(verdicts[each]) for each in Verdict)


if __name__ == "__main__":
    main()
