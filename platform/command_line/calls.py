"""Calls of the management API as commands: made from `calls.json`, which is made from the API's own
description (`manage.py write_command_line_calls`). A tenant's path parameter is its key's."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import click

from command_line.service import WRITTEN, Service, the_service
from command_line.shown import show_json, show_record, show_rows

FILE: Final = Path(__file__).with_name("calls.json")
_ROWS: Final = 200
_PAGE: Final = 200
_TYPES: Final[Mapping[str, Any]] = {
    "integer": click.INT,
    "number": click.FLOAT,
    "boolean": click.BOOL,
    "string": click.STRING,
}
Call = Mapping[str, Any]


@cache
def calls() -> Mapping[str, Mapping[str, Call]]:
    """Return noun, verb and call."""
    found: Mapping[str, Mapping[str, Call]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def command_of(verb: str, call: Call) -> click.Command:
    """Return a call as a command with an argument for each id, and an option for each field."""
    parameters: list[click.Parameter] = [click.Argument([name]) for name in call["ids"]]
    parameters += [_option(field) for field in (*call["query"], *call["body"])]
    if call["is_paged"]:
        parameters.append(_limit())
    as_json = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document.")
    return click.Command(
        verb,
        params=[*parameters, as_json],
        callback=_caller(call),
        help=f"{call['summary']}.\n\n{call['help']}",
        short_help=f"{call['summary']}.",
    )


def _limit() -> click.Option:
    return click.Option(
        ["--limit", "rows"],
        type=click.IntRange(1),
        default=_ROWS,
        show_default=True,
        help="How many rows.",
    )


def _option(field: Mapping[str, Any]) -> click.Option:
    kind = click.Choice(field["choices"]) if field["choices"] else _TYPES.get(field["type"])
    return click.Option(
        [f"--{field['name'].replace('_', '-')}", field["name"]],
        type=kind or _JsonText(),
        multiple=field["is_many"],
        required=field["is_required"],
        help=field["help"],
    )


class _JsonText(click.ParamType[Any]):
    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"{value!r} is no JSON: {error}.", param, ctx)


def _caller(call: Call) -> Callable[..., None]:
    def made(as_json: bool, rows: int = 0, **given: Any) -> None:
        service = the_service()
        path = call["path"].format(
            **{name: given[name] for name in call["ids"]},
            tenant_id=service.tenant_id,
        )
        query = _sent(call["query"], given)
        if call["columns"]:
            found = list(_rows(service, path, query, rows))
            if as_json:
                show_json(found)
            else:
                show_rows(found, call["columns"], of=call["noun"])
            return
        body = _sent(call["body"], given) if call["method"] in {"POST", "PATCH", "PUT"} else None
        answer = service.call(call["method"], path, query=query, body=body, into=sys.stdout.buffer)
        if answer is WRITTEN:  # a file is what it is
            return
        if as_json:
            show_json(answer)
        elif answer is not None:
            show_record(answer)

    return made


def _rows(
    service: Service, path: str, query: Mapping[str, Any], limit: int
) -> Iterator[Mapping[str, Any]]:
    """Yield at most so many rows of a list, page by page; with a limit of 0 those of one that has
    no pages."""
    if not limit:
        yield from service.call("GET", path, query=query)["data"]
    cursor = None
    while limit > 0:
        asked = {**query, "limit": min(limit, _PAGE)} | ({"cursor": cursor} if cursor else {})
        page = service.call("GET", path, query=asked)
        yield from page["data"]
        limit -= len(page["data"])
        cursor = page.get("next_cursor")
        if cursor is None:
            return


def _sent(fields: list[Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, by the API's names."""
    named = {field["name"]: given[field["name"]] for field in fields}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in named.items()
        if value is not None and value != ()
    }
