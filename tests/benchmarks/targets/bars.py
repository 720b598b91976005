"""Bars that a benchmark has to meet, which a run in its smallest form cannot be held to."""

import argparse
from collections.abc import Sequence


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--no-bars`, which `judge` reads."""
    parser.add_argument(
        "--no-bars", action="store_true", help="print which bars are missed, and succeed"
    )


def judge(missed: Sequence[str], options: argparse.Namespace) -> None:
    """Print which bars were missed. Raises `SystemExit` if there are any, unless `--no-bars`."""
    if not missed:
        return
    said = f"Missed: {', '.join(missed)}."
    if not options.no_bars:
        raise SystemExit(said)
    print(said)
