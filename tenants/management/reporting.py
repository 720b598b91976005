"""The shape of our commands: one verb, told to people line by line or to programs as JSON."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError
from redis.exceptions import RedisError

from tenants.errors import TenantsError
from tenants.isolation.scoping import operator_scope
from tenants.management import UNREACHABLE
from tenants.management.arguments import one_sentence
from tenants.verbs import of_command

Fact = str | int | bool | datetime | None


class ReportingCommand(BaseCommand):
    """With `--json` a command prints one object on standard output and nothing else. A server
    that is down is one sentence, too."""

    # Whether all that the command does is done or undone together, across the tenants' walls.
    is_one_transaction = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = type(self).__module__.rpartition(".")[2]
        self._verbs = tuple(of_command(self._name))
        if not self.help and len(self._verbs) == 1:
            self.help = self._verbs[0].told

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser, in which arguments say what the table of verbs has of them."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        takes = {name: what for verb in self._verbs for name, what in verb.takes.items()}
        for argument in parser._actions:
            argument.help = argument.help or takes.get(argument.dest)
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def execute(self, *args: Any, **options: Any) -> str | None:
        across = operator_scope(f"command {self._name}")
        try:
            with across if self.is_one_transaction else nullcontext():
                return super().execute(*args, **options)
        except ValidationError as error:
            raise CommandError(one_sentence(error)) from error
        except TenantsError as error:
            raise CommandError(error.message) from None
        except OperationalError as error:
            text = f"PostgreSQL is not reachable: {_first_line(error)}."
            raise CommandError(text, returncode=UNREACHABLE) from None
        except RedisError as error:
            text = f"The dispatch Redis is not reachable: {_first_line(error)}."
            raise CommandError(text, returncode=UNREACHABLE) from None

    def report_rows(
        self, options: dict[str, Any], rows: Sequence[Mapping[str, Fact]], *, of: str
    ) -> None:
        """Print a list: one JSON array, or a line each under a line of names. `of` is what the
        rows are, in the plural, to say that there are none."""
        if options["json"]:
            self.stdout.write(json.dumps(rows, default=_text))
            return
        if not rows:
            self.stdout.write(f"No {of}.")
            return
        lines = [[name.replace("_", " ") for name in rows[0]]]
        lines += [[_text(fact) for fact in row.values()] for row in rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())

    def report_with_rows(
        self,
        options: dict[str, Any],
        facts: Mapping[str, Fact],
        rows: Sequence[Mapping[str, Fact]],
        *,
        of: str,
    ) -> None:
        """Print a record and what belongs to it: one JSON object with the rows under `of`, or the
        facts and below them the rows as `report_rows` does."""
        if options["json"]:
            self.stdout.write(json.dumps({**facts, of: rows}, default=_text))
            return
        self.report(options, **facts)
        self.stdout.write("")
        self.report_rows(options, rows, of=of)

    def report(self, options: dict[str, Any], **facts: Fact) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(facts, default=_text))
            return
        width = max(len(name) for name in facts) + 2
        for name, fact in facts.items():
            if fact is not None:
                self.stdout.write(f"{name.replace('_', ' '):<{width}}{_text(fact)}")


def _text(fact: object) -> str:
    if isinstance(fact, datetime):
        return fact.isoformat(timespec="seconds")
    return "" if fact is None else str(fact)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
