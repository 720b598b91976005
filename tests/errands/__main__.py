"""Play the errands on a stack of their own, or on one that runs, and print what each took.

    python -m tests.errands                 # all of them
    python -m tests.errands --only owner    # those whose name holds the word
    python -m tests.errands --write FILE

An errand that cannot be done is a row that says where it stops, and the status is 1.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Error as BrowserError

from tests.errands.errands import ERRANDS
from tests.errands.person import Effort, Visitor
from tests.support.chromium.launching import FLAGS, chromium_path
from tests.support.live_stack import run_live_stack
from tests.support.stack_addresses import LiveStack

_PATIENCE_MS = 15_000


def main(only: str) -> dict[str, Effort | str]:
    """Return what each errand took, or where it stopped."""
    chromium = chromium_path()
    if chromium is None:
        sys.exit("This machine has no Chromium: apt-get install chromium.")
    wanted = [name for name in ERRANDS if only.lower() in name.lower()]
    with (
        run_live_stack() as stack,
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory() as folder,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        return {name: _played(name, browser, stack, Path(folder)) for name in wanted}


def _played(name: str, browser: Browser, stack: LiveStack, folder: Path) -> Effort | str:
    context = browser.new_context(base_url=stack.public_url)
    context.set_default_timeout(_PATIENCE_MS)
    visitor = Visitor(context.new_page())
    try:
        ERRANDS[name](visitor, stack, folder)
        return visitor.effort()
    except (AssertionError, BrowserError) as error:
        return str(error).strip().splitlines()[0]
    finally:
        context.close()


def table(taken: dict[str, Effort | str]) -> str:
    rows = ["| errand | clicks | fields | commands | seconds |", "| --- | --- | --- | --- | --- |"]
    for name, effort in taken.items():
        if isinstance(effort, str):
            rows.append(f"| {name} | stops: {effort} | | | |")
        else:
            counted = f"{effort.clicks} | {effort.fields} | {effort.commands}"
            rows.append(f"| {name} | {counted} | {effort.seconds:.2f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.errands", description=__doc__)
    parser.add_argument("--only", default="", help="a word of the errands' names")
    parser.add_argument("--write", type=Path, help="a file for the table")
    options = parser.parse_args()
    played = main(options.only)
    print(table(played))
    if options.write:
        options.write.write_text(table(played) + "\n")
    if any(isinstance(effort, str) for effort in played.values()):
        sys.exit(1)
