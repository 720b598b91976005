"""manage.py seed_demo --existing var/demo.env --json"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from control_plane.demo.history import seed_history
from control_plane.demo.tenants import DemoSecrets, seed_demo
from tenants.management.reporting import ReportingCommand
from tenants.models import ApiKey


class Command(ReportingCommand):
    help = "Create the demo's operator, tenants, keys and models if they are missing."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--existing",
            type=Path,
            help="file of KEY=value lines that an earlier run left (need not exist); its keys are "
            "kept if they work",
        )
        parser.add_argument(
            "--model", action="append", default=[], help="a further model to put into the catalogue"
        )
        parser.add_argument(
            "--history",
            action="store_true",
            help="record usage of last month, which is invoiced, and of this one until today, "
            "where nothing was used before",
        )
        parser.add_argument("--operator-email", help="default: the file's, or the demo's own")

    def handle(self, *_: Any, **options: Any) -> None:
        existing = DemoSecrets.from_environ(_read_env_file(options["existing"]))
        if options["operator_email"]:
            existing = replace(existing, operator_email=options["operator_email"])
        try:
            seeded = seed_demo(existing, models=tuple(options["model"]))
        except ValidationError as error:
            raise CommandError(f"The demo cannot be seeded: {' '.join(error.messages)}") from None
        if options["history"]:
            keys = (seeded.acme_key, seeded.globex_key)
            acme, globex = (ApiKey.objects.find(key or "") for key in keys)
            if acme is not None and globex is not None:
                seed_history(acme, globex)
        self.report(options, **asdict(seeded))


def _read_env_file(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from None
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
