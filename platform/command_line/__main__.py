"""python -m command_line: what the console script `penstock` runs."""

import sys
from pathlib import Path
from typing import Final

PLATFORM: Final = Path(__file__).resolve().parent.parent
# As a shell has it of a program that SIGINT ended.
INTERRUPTED: Final = 130


def main() -> None:
    sys.path[:0] = [str(PLATFORM.parent), str(PLATFORM)]
    import click

    from command_line.application import penstock
    from command_line.failures import show

    try:
        status = penstock.main(prog_name="penstock", standalone_mode=False)
    except click.ClickException as error:
        show(error)
        status = error.exit_code
    except click.Abort:
        status = INTERRUPTED
    sys.exit(status or 0)


if __name__ == "__main__":
    main()
