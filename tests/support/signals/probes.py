"""/healthz, /readyz and /metrics, asked over ASGI as a server would."""

import json
from dataclasses import dataclass
from ipaddress import ip_network

from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def reasons(self) -> list[str]:
        return list(json.loads(self.body)["reasons"])


async def ask(
    health: Health,
    path: str,
    method: str = "GET",
    *,
    bearer: str | None = None,
    token: str = "",
    address: str = "127.0.0.1",
) -> Answer:
    """Ask as a prober, or as a scraper that bears something, where `token` is the right thing, and
    this machine may see without."""
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [] if bearer is None else [(b"authorization", f"Bearer {bearer}".encode())]
    scope = {"method": method, "path": path, "headers": headers, "client": (address, 4711)}
    viewers = Viewers(token=token, networks=[ip_network("127.0.0.0/8")])
    await StatusEndpoints(health, viewers)(scope, None, send)
    start, body = sent
    said = {name.decode(): value.decode() for name, value in start["headers"]}  # type: ignore[attr-defined]
    return Answer(status=start["status"], headers=said, body=body["body"].decode())  # type: ignore[attr-defined, arg-type]
