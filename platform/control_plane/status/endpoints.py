"""Probes and metrics as plain ASGI: they respond even if Django cannot."""

import json
from typing import Any, Final

from control_plane.status import metrics, targets
from control_plane.status.health import Health, HealthReport
from control_plane.status.viewers import Viewers

PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/metrics/targets"})
_JSON: Final = "application/json"
_NOT_TRUSTED: Final = (
    b"This takes the bearer token that PENSTOCK_METRICS_TOKEN holds, or an address of "
    b"PENSTOCK_METRICS_NETWORKS.\n"
)


class StatusEndpoints:
    """ASGI application for the paths in `PATHS`: probes and collectors."""

    def __init__(self, health: Health, viewers: Viewers) -> None:
        self._health = health
        self._viewers = viewers

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(scope, send, 405, "text/plain", b"GET only\n", (b"allow", b"GET, HEAD"))
        elif scope["path"] == "/healthz":
            await _answer(scope, send, 200, "text/plain", b"")
        elif scope["path"] == "/readyz":
            report = await self._health.report()
            may_see = self._is_near(scope) or self._viewers.is_token(_bearer(scope))
            body = json.dumps(_readiness(report, details=may_see), indent=1).encode() + b"\n"
            await _answer(scope, send, 200 if report.is_ready else 503, _JSON, body)
        else:
            await self._measure(scope, send)

    async def _measure(self, scope: Any, send: Any) -> None:
        """Answer a scraper. One without a token, of a network that may see, gets sums over what is
        not public; one with a wrong token is told so, rather than left to alert on less than it
        thinks it sees."""
        given = _bearer(scope)
        is_trusted = self._viewers.is_token(given)
        is_targets = scope["path"] == "/metrics/targets"
        takes_token = is_targets or given is not None or not self._is_near(scope)
        if not is_trusted and takes_token:
            await _answer(
                scope, send, 401, "text/plain", _NOT_TRUSTED, (b"www-authenticate", b"Bearer")
            )
            return
        report = await self._health.report()
        if is_targets:
            body = json.dumps(targets.targets(report.pools), indent=1).encode() + b"\n"
            await _answer(scope, send, 200, _JSON, body)
        else:
            body = metrics.render(report, names_all=is_trusted)
            await _answer(scope, send, 200, metrics.CONTENT_TYPE, body)

    def _is_near(self, scope: Any) -> bool:
        client = scope.get("client")
        return self._viewers.is_near(client[0] if client else None)


def _bearer(scope: Any) -> bytes | None:
    """Return the token of the Authorization header, None without the header."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = bytes(value).partition(b" ")
            return token.strip() if scheme.lower() == b"bearer" else b""
    return None


def _readiness(report: HealthReport, *, details: bool) -> dict[str, Any]:
    """Return the body of /readyz, without models that are not public: probes have no key."""
    status = "ready" if report.is_ready else "not ready"
    if not details:
        return {"status": status}
    return {
        "status": status,
        "reasons": [f"{part.name}: {part.detail}" for part in report.parts if not part.is_well],
        "parts": {
            part.name: {"well": part.is_well, "detail": part.detail} for part in report.parts
        },
        "models": {
            model.policy.name: {
                "ready_workers": len(model.pool.ready),
                "live_workers": len(model.pool.live),
                "queued": model.pool.queued,
                "degraded": model.pool.degraded_parts,
            }
            for model in report.models
            if model.is_public
        },
    }


async def _answer(
    scope: Any,
    send: Any,
    status: int,
    content_type: str,
    body: bytes,
    *more_headers: tuple[bytes, bytes],
) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *more_headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
