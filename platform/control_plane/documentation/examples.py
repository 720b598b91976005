"""Each operation as a curl line and as a few lines of Python, with the body that the document shows
as its example."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final

from inference.management_api.description.security import API_KEY, CSRF_TOKEN, SESSION

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_WIDTH: Final = 76


@dataclass(frozen=True, kw_only=True)
class Examples:
    curl: str
    python: str


def examples_of(method: str, path: str, operation: Mapping[str, Any], public_url: str) -> Examples:
    """Return the operation's examples. Secrets and ids are variables: nothing in them works for
    anybody else."""
    body = _body_of(operation)
    schemes = {name for each in operation["security"] for name in each}
    return Examples(
        curl=_curl(method, f"{public_url}{path}", body, schemes),
        python=_python(method, f"{public_url}{path}", body, schemes),
    )


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
