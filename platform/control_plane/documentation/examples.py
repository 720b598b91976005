"""Each operation as a few lines of Python and as a curl line, with the body that the document shows
as its example; where OpenAI's client has the operation, with that."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final

from inference.management_api.description.security import API_KEY, CSRF_TOKEN, SESSION

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_WIDTH: Final = 76
# What OpenAI's client calls the operation, and what of an event of its stream is text.
_CLIENT_METHODS: Final = {
    "chat_completions_create": ("chat.completions.create", "message.content", "delta.content"),
    "completions_create": ("completions.create", "text", "text"),
}


@dataclass(frozen=True)
class Example:
    title: str
    code: str


def examples_of(
    method: str, path: str, operation: Mapping[str, Any], public_url: str
) -> list[Example]:
    """Return the operation's examples. Secrets and ids are variables: nothing in them works for
    anybody else."""
    body, url = _body_of(operation), f"{public_url}{path}"
    schemes = {name for each in operation["security"] for name in each}
    if names := _CLIENT_METHODS.get(operation["operationId"]):
        python = [
            Example("Python, openai", _client(public_url, names[0], names[1], body)),
            Example("Python, openai, streamed", _streamed(public_url, names[0], names[2], body)),
        ]
    else:
        python = [Example("Python", _python(method, url, body, schemes))]
    return [*python, Example("curl", _curl(method, url, body, schemes))]


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
        f'client = OpenAI(base_url="{public_url}/v1", api_key=os.environ["PENSTOCK_API_KEY"])',
        f"{result} = client.{name}(",
        *(f"    {argument}," for argument in (*fields, *more)),
        ")",
    ]


def _body_of(operation: Mapping[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("example")


def _curl(method: str, url: str, body: Any, schemes: set[str]) -> str:
    url = _VARIABLE.sub(lambda match: f"${match[1].upper()}", url)
    lines = [f'curl "{url}"' if method == "GET" else f'curl -X {method} "{url}"']
    if API_KEY in schemes:
        lines.append('-H "Authorization: Bearer $PENSTOCK_API_KEY"')
    elif SESSION in schemes or method == "POST":
        lines.append("-b cookies.txt -c cookies.txt")
        if method != "GET":
            lines.append('-H "X-CSRFToken: $CSRF_TOKEN"')
    if body is not None:
        lines.append('-H "Content-Type: application/json"')
        shown = json.dumps(body, ensure_ascii=False).replace("'", "'\\''")
        lines.append(f"-d '{shown}'")
    return " \\\n  ".join(lines)


def _python(method: str, url: str, body: Any, schemes: set[str]) -> str:
    names = list(dict.fromkeys(_VARIABLE.findall(url)))
    has_key = API_KEY in schemes
    lines = ["import os", ""] if has_key or names else []
    lines += ["import httpx", ""]
    lines += [f'{name} = os.environ["{name.upper()}"]' for name in names]
    asks = f"httpx.{method.lower()}("
    arguments = [f'f"{url}"' if names else f'"{url}"']
    if has_key:
        lines.append('key = os.environ["PENSTOCK_API_KEY"]')
        arguments.append('headers={"Authorization": f"Bearer {key}"}')
    elif SESSION in schemes or CSRF_TOKEN in schemes or method == "POST":
        lines.append("client = httpx.Client()  # keeps the cookies")
        lines.append(f'session = client.get("{_session_of(url)}").json()')
        asks = f"client.{method.lower()}("
        if method != "GET":
            arguments.append('headers={"X-CSRFToken": session["csrf_token"]}')
    if body is not None:
        shown = pformat(body, width=_WIDTH, sort_dicts=False).replace("\n", "\n    ")
        arguments.append(f"json={shown}")
    lines.append(f"answer = {asks}")
    lines += [f"    {argument}," for argument in arguments]
    lines += [")", "answer.raise_for_status()"]
    lines.append("print(answer.text)")
    return "\n".join(lines)


def _session_of(url: str) -> str:
    return f"{url.partition('/api/')[0]}/api/v1/session"
