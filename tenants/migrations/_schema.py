"""What the initial migrations of all apps are written with."""

import uuid
from pathlib import Path
from typing import Any

from django.db import migrations, models

ROOT = Path(__file__).parents[2]

UUID_KEY = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False, serialize=False)
SERIAL_KEY = models.BigAutoField(primary_key=True, serialize=False)
# As Django makes it where a model names no key.
AUTO_KEY = models.BigAutoField("ID", auto_created=True, primary_key=True, serialize=False)


def columns(**fields: Any) -> list[tuple[str, Any]]:
    """Return a model's fields as `CreateModel` takes them, in the order of the table's columns."""
    return list(fields.items())


def pairs(*values: str) -> list[tuple[str, str]]:
    """Return choices that are their own labels."""
    return [(value, value) for value in values]


def titled(*values: str) -> list[tuple[str, str]]:
    """Return choices with the labels that `TextChoices` makes."""
    return [(value, value.replace("_", " ").title()) for value in values]


def sql_file(path: str) -> migrations.RunSQL:
    """Run a file of the repository: functions, triggers and rights that stand beside their code."""
    return migrations.RunSQL((ROOT / path).read_text(encoding="utf-8"))
