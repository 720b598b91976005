"""How the command line fails: one line on standard error, and a status that scripts can tell apart.

0 done, 1 refused, 2 misused, 3 not reachable; 130 where it was interrupted.
"""

from typing import IO, Any, Final

import click

from tenants.management import UNREACHABLE

REFUSED: Final = 1


class Refused(click.ClickException):
    """Whoever was asked has answered, and would not do it."""

    exit_code = REFUSED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it in one line."""
        click.echo(f"penstock: {' '.join(self.format_message().split())}", file=file, err=True)


class Unreachable(Refused):
    exit_code = UNREACHABLE
