"""The shape of our commands: one verb, told to people line by line or to programs as JSON."""

import json
from contextlib import nullcontext
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError
from redis.exceptions import RedisError

from tenants.scoping import operator_scope

Fact = str | int | bool | None


class ReportingCommand(BaseCommand):
    """With `--json` a command prints one object on standard output and nothing else. A server
    that is down is one sentence, too."""

    # Whether all that the command does is done or undone together, across the tenants' walls.
    is_one_transaction = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def execute(self, *args: Any, **options: Any) -> str | None:
        name = type(self).__module__.rpartition(".")[2]
        scope = operator_scope(f"command {name}") if self.is_one_transaction else nullcontext()
        try:
            with scope:
                return super().execute(*args, **options)
        except OperationalError as error:
            raise CommandError(f"PostgreSQL does not answer: {_first_line(error)}.") from None
        except RedisError as error:
            raise CommandError(
                f"The dispatch Redis does not answer: {_first_line(error)}."
            ) from None

    def report(self, options: dict[str, Any], **facts: Fact) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(facts))
            return
        width = max(len(name) for name in facts) + 2
        for name, fact in facts.items():
            if fact is not None:
                self.stdout.write(f"{name.replace('_', ' '):<{width}}{fact}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
