"""What a command prints: tables for people, one JSON document for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

_PIPED_COLUMNS: Final = 200
_MOST_COLUMNS: Final = 12


def show_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], *, of: str) -> None:
    """Print a list, as wide as the terminal allows."""
    if not rows:
        click.echo(f"No {of}.")
        return
    from rich.console import Console
    from rich.table import Table

    names = _told(rows, columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(text_of(row.get(name)) for name in names))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_COLUMNS
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)


def _told(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> list[str]:
    """Return the columns that some row has a value in; of ids with a name beside them, the name."""
    names = [name for name in columns if any(row.get(name) not in (None, "", []) for row in rows)]
    told = [name for name in names if f"{name.removesuffix('_id')}_name" not in names]
    return told[:_MOST_COLUMNS]


def show_record(record: Mapping[str, Any]) -> None:
    """Print one record, a line for each field that has a value."""
    told = {name: value for name, value in record.items() if value is not None and name != "object"}
    width = max((len(name) for name in told), default=0) + 2
    for name, value in told.items():
        click.echo(f"{name.replace('_', ' '):<{width}}{text_of(value)}")


def text_of(value: Any) -> str:
    """Return a value in a cell or line; what has parts as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and not any(isinstance(each, (dict, list)) for each in value):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
