"""Each operation as a few lines of Python and as a curl line, with the body that the document shows
as its example; where OpenAI's client has the operation, with that."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final

from control_plane.management_api.openapi.security import API_KEY, SESSION

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_WIDTH: Final = 76
_SESSION_PATH: Final = "/api/v1/session"
_FILE: Final = "adapter.zip"
# Every shell has sed.
_READ_TOKEN: Final = """sed 's/.*"csrf_token":"//; s/".*//'"""  # noqa: S105 - a command
# What OpenAI's client calls the operation, and what of an event of its stream is text.
_CLIENT_METHODS: Final = {
    "chat_completions_create": ("chat.completions.create", "message.content", "delta.content"),
    "completions_create": ("completions.create", "text", "text"),
}


@dataclass(frozen=True)
class Example:
    title: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """What goes with a request. `session` is the address of the session that it takes instead of a
    key, which is somebody's if `is_signed_in`; `files` are the names of a form's."""

    body: Any
    files: list[str]
    has_key: bool
    session: str | None
    is_signed_in: bool


def examples_of(
    method: str, path: str, operation: Mapping[str, Any], public_url: str
) -> list[Example]:
    """Return the operation's examples. Secrets and ids are variables: nothing in them works for
    anybody else."""
    body, url = _body_of(operation), f"{public_url}{path}"
    call = _call(operation, body, url, f"{public_url}{_SESSION_PATH}")
    if names := _CLIENT_METHODS.get(operation["operationId"]):
        python = [
            Example("Python, openai", _client(public_url, names[0], names[1], body)),
            Example("Python, openai, streamed", _streamed(public_url, names[0], names[2], body)),
        ]
    else:
        python = [Example("Python", _python(method, url, call))]
    return [*python, Example("curl", _curl(method, url, call))]


def _call(operation: Mapping[str, Any], body: Any, url: str, session: str) -> Call:
    security = operation["security"]
    schemes = {name for each in security for name in each}
    has_key = API_KEY in schemes
    takes_session = SESSION in schemes or url == session
    return Call(
        body=body,
        files=_files_of(operation),
        has_key=has_key,
        session=session if takes_session and not has_key else None,
        is_signed_in=not has_key and SESSION in schemes and {} not in security,
    )


def _client(public_url: str, name: str, text: str, body: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            *_client_call(public_url, "answer", name, body),
            f"print(answer.choices[0].{text})",
        ]
    )


def _streamed(public_url: str, name: str, text: str, body: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            *_client_call(public_url, "stream", name, body, "stream=True"),
            "for chunk in stream:",
            "    if chunk.choices:",
            f'        print(chunk.choices[0].{text} or "", end="", flush=True)',
            "print()",
        ]
    )


def _client_call(
    public_url: str, result: str, name: str, body: Mapping[str, Any], *more: str
) -> list[str]:
    fields = [f"{each}={json.dumps(body[each], ensure_ascii=False)}" for each in body]
    return [
        "import os",
        "",
        "from openai import OpenAI",
        "",
        "client = OpenAI(",
        f'    base_url="{public_url}/v1",',
        '    api_key=os.environ["PENSTOCK_API_KEY"],',
        ")",
        f"{result} = client.{name}(",
        *(f"    {argument}," for argument in (*fields, *more)),
        ")",
    ]


def _body_of(operation: Mapping[str, Any]) -> Any:
    return _content_of(operation, "application/json").get("example")


def _content_of(operation: Mapping[str, Any], media_type: str) -> Mapping[str, Any]:
    content: Mapping[str, Any] = operation.get("requestBody", {}).get("content", {})
    form: Mapping[str, Any] = content.get(media_type, {})
    return form


def _files_of(operation: Mapping[str, Any]) -> list[str]:
    """Return the names of the files of a form."""
    schema = _content_of(operation, "multipart/form-data").get("schema", {})
    return list(schema.get("properties", {}))


def _curl(method: str, url: str, call: Call) -> str:
    lines, session = [], call.session
    if session is not None and method != "GET":
        asked = f'curl -sS -b cookies.txt -c cookies.txt "{session}"'
        lines.append(f"CSRF_TOKEN=$({asked} | {_READ_TOKEN})")
    if call.is_signed_in:
        lines.insert(0, "# cookies.txt: as it is left by signing in")
    url = _VARIABLE.sub(lambda match: f"${match[1].upper()}", url)
    words = [f'curl "{url}"' if method == "GET" else f'curl -X {method} "{url}"']
    if call.has_key:
        words.append('-H "Authorization: Bearer $PENSTOCK_API_KEY"')
    elif session is not None:
        words.append("-b cookies.txt -c cookies.txt")
        if method != "GET":
            words.append('-H "X-CSRFToken: $CSRF_TOKEN"')
    words += [f'-F "{name}=@{_FILE}"' for name in call.files]
    if call.body is not None:
        words.append('-H "Content-Type: application/json"')
        shown = json.dumps(call.body, ensure_ascii=False).replace("'", "'\\''")
        words.append(f"-d '{shown}'")
    return "\n".join([*lines, " \\\n  ".join(words)])


def _python(method: str, url: str, call: Call) -> str:
    names = list(dict.fromkeys(_VARIABLE.findall(url)))
    lines = ["import os", ""] if call.has_key or call.is_signed_in or names else []
    lines[1:1] = ["from pathlib import Path"] if call.files else []
    lines += ["import httpx", ""]
    lines += [f'{name} = os.environ["{name.upper()}"]' for name in names]
    asks = f"httpx.{method.lower()}("
    arguments = [f'f"{url}"' if names else f'"{url}"']
    if call.has_key:
        lines.append('key = os.environ["PENSTOCK_API_KEY"]')
        arguments.append('headers={"Authorization": f"Bearer {key}"}')
    elif call.session is not None:
        lines += _session(call.session, is_signed_in=call.is_signed_in)
        asks = f"client.{method.lower()}("
        if method != "GET":
            arguments.append('headers={"X-CSRFToken": session["csrf_token"]}')
    arguments += [f'files={{"{name}": Path("{_FILE}").read_bytes()}}' for name in call.files]
    if call.body is not None:
        shown = pformat(call.body, width=_WIDTH, sort_dicts=False).replace("\n", "\n    ")
        arguments.append(f"json={shown}")
    lines.append(f"answer = {asks}")
    lines += [f"    {argument}," for argument in arguments]
    lines += [")", "answer.raise_for_status()"]
    lines.append("print(answer.text)")
    return "\n".join(lines)


def _session(address: str, *, is_signed_in: bool) -> list[str]:
    lines = [
        "client = httpx.Client()  # keeps the cookies",
        f'session = client.get("{address}").json()',
    ]
    if is_signed_in:
        lines += [
            "session = client.post(",
            f'    "{address}",',
            '    headers={"X-CSRFToken": session["csrf_token"]},',
            '    json={"email": os.environ["EMAIL"], "password": os.environ["PASSWORD"]},',
            ").json()",
        ]
    return lines
