"""/healthz, /readyz and /metrics as plain ASGI: they respond even if Django cannot."""

import json
from typing import Any, Final

from control_plane.status import metrics
from control_plane.status.health import Health, HealthReport

PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_JSON: Final = "application/json"


class StatusEndpoints:
    """ASGI application for the paths in `PATHS`: probes and collectors."""

    def __init__(self, health: Health) -> None:
        self._health = health

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(scope, send, 405, "text/plain", b"GET only\n", allow="GET, HEAD")
        elif scope["path"] == "/healthz":
            await _answer(scope, send, 200, _JSON, b'{"status": "alive"}\n')
        elif scope["path"] == "/readyz":
            report = await self._health.report()
            body = json.dumps(_readiness(report), indent=1).encode() + b"\n"
            await _answer(scope, send, 200 if report.is_ready else 503, _JSON, body)
        else:
            body = metrics.render(await self._health.report())
            await _answer(scope, send, 200, metrics.CONTENT_TYPE, body)


def _readiness(report: HealthReport) -> dict[str, Any]:
    """Return the body of /readyz, without models that are not public: probes have no key."""
    return {
        "status": "ready" if report.is_ready else "not ready",
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
    allow: str | None = None,
) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if allow:
        headers.append((b"allow", allow.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
