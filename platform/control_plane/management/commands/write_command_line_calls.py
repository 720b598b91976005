"""manage.py write_command_line_calls"""

import json
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand

from control_plane.management_api.openapi.command_line import command_line_calls

FILE: Final = Path(__file__).resolve().parents[3] / "command_line" / "calls.json"


class Command(BaseCommand):
    help = "Write what `penstock` knows of the management API, after that has changed."

    def handle(self, *_: Any, **_options: Any) -> None:
        FILE.write_text(calls_json(), encoding="utf-8")
        self.stdout.write(f"Wrote {FILE.name}.")


def calls_json() -> str:
    return json.dumps(command_line_calls(), indent=1, ensure_ascii=False) + "\n"
