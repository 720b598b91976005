"""The shape of our commands: one verb, told to people line by line or to programs as JSON."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

Fact = str | int | bool | None


class ReportingCommand(BaseCommand):
    """With `--json` a command prints one object on standard output and nothing else."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def report(self, options: dict[str, Any], **facts: Fact) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(facts))
            return
        width = max(len(name) for name in facts) + 2
        for name, fact in facts.items():
            if fact is not None:
                self.stdout.write(f"{name.replace('_', ' '):<{width}}{fact}")
