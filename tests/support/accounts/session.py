"""Somebody's session with a live stack, as a browser has it, without the browser."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.support.places import NO_TLS
from tests.support.stack_addresses import LiveStack, Person

_CSRF = "penstock_csrf"
_SECONDS = 60


class Session:
    """Reads pages and API, and sends forms and JSON with the token that they ask for."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def look(self, path: str) -> httpx.Response:
        """Get an address, whatever it answers."""
        return self._http.get(path)

    def get(self, path: str) -> httpx.Response:
        answer = self.look(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer

    def post(self, path: str, **body: Any) -> httpx.Response:
        """`body` is `json` or `data`, as httpx takes it."""
        token = {"X-CSRFToken": self._http.cookies[_CSRF]}
        answer = self._http.post(path, headers=token, **body)
        assert answer.status_code < 400, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer

    def ask_playground(
        self, tenant_id: str, project_id: str, body: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Ask as the playground's page does, to the answer's end; return the frames that came."""
        page = f"/t/{tenant_id}/playground"
        told = self.post(f"{page}/tickets", data={"project": project_id}).json()
        base = self._http.base_url
        address = f"ws://{base.netloc.decode()}/ws/v1/stream?session_ticket={told['ticket']}"
        cookies = "; ".join(f"{name}={value}" for name, value in self._http.cookies.items())
        frame = {"type": "request", "id": "r1", "api": "chat.completions", "body": body}
        with connect(
            address,
            additional_headers={"Cookie": cookies},
            origin=Origin(f"{base.scheme}://{base.netloc.decode()}"),
            open_timeout=_SECONDS,
        ) as socket:
            socket.send(json.dumps(frame))
            frames = [json.loads(socket.recv(_SECONDS))]
            while frames[-1]["type"] not in ("done", "error"):
                frames.append(json.loads(socket.recv(_SECONDS)))
        return frames


@contextmanager
def signed_in(stack: LiveStack, who: Person, *, is_operator: bool = False) -> Iterator[Session]:
    """By the API's door, or by the operators' own."""
    with httpx.Client(base_url=stack.public_url, verify=NO_TLS, timeout=_SECONDS) as http:
        session = Session(http)
        if is_operator:
            session.get("/admin/login/")
            fields = {"username": who.email, "password": who.password}
            session.post("/admin/login/", data=fields)
        else:
            session.get("/api/v1/session")
            body = {"email": who.email, "password": who.password}
            session.post("/api/v1/session", json=body)
        yield session
