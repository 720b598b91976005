"""How the command line fails: one line on standard error, and a status that scripts can tell apart.

0 done, 1 refused, 2 misused, 3 not reachable; 130 where it was interrupted.
"""

from typing import IO, Any, Final

import click

from tenants.management import UNREACHABLE

REFUSED: Final = 1
MISUSED: Final = 2


class Refused(click.ClickException):
    """Whoever was asked has answered, and would not do it."""

    exit_code = REFUSED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it in one line."""
        click.echo(_one_line(self.format_message()), file=file, err=True)


class Misused(Refused):
    """What was asked is not what the verb takes."""

    exit_code = MISUSED


class Unreachable(Refused):
    exit_code = UNREACHABLE


def show(failure: click.ClickException) -> None:
    """Print any failure in one line; click has three of what is asked wrongly."""
    if isinstance(failure, Refused | click.exceptions.NoArgsIsHelpError):
        failure.show()
        return
    see = ""
    if isinstance(failure, click.UsageError) and failure.ctx is not None:
        see = f" See {failure.ctx.command_path} --help."
    click.echo(_one_line(f"{failure.format_message()}{see}"), err=True)


def _one_line(text: str) -> str:
    return f"penstock: {' '.join(text.split())}"
