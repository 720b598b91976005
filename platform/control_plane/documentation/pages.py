"""/docs/api, the pages of its groups, and /docs/websocket: views."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from control_plane.documentation.reader import reader_of
from control_plane.documentation.reference import published
from control_plane.documentation.shapes import Field, fields_of
from control_plane.web.pages import private
from inference.admission.gate import TICKET_SECONDS
from inference.websocket_api import frames
from inference.websocket_api.application import PATH as WEBSOCKET_PATH

_CLIENTS: Final = Path(__file__).resolve().parents[3] / "templates/dashboard/docs/clients"
_CACHE_SECONDS: Final = 300
# One frame of each kind, in the order in which a connection sees them.
_FRAMES: Final = (
    (frames.RequestFrame, "You"),
    (frames.CancelFrame, "You"),
    (frames.NoticeFrame, "Penstock"),
    (frames.ChunkFrame, "Penstock"),
    (frames.DoneFrame, "Penstock"),
    (frames.ErrorFrame, "Penstock"),
)


@require_safe
def api_reference(request: HttpRequest) -> HttpResponse:
    """List the operations, all or those that `?search=` finds."""
    words = request.GET.get("search", "").strip()
    reference = published()
    found = [
        {"group": group, "operations": [each for each in group.operations if each.matches(words)]}
        for group in reference.groups
    ]
    context = {
        "page": "api",
        "reference": reference,
        "found": [each for each in found if each["operations"]],
        "search": words,
        "public_url": settings.PENSTOCK_PUBLIC_URL,
    }
    return _for_anybody(render(request, "dashboard/docs/api.html", context))


@require_safe
def api_group(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the operations and objects of one group, with examples for whoever reads them."""
    group = published().group(slug)
    if group is None:
        raise Http404
    reader = reader_of(request)
    context = {"page": "api", "reference": published(), "group": group, "reader": reader}
    response = render(request, "dashboard/docs/group.html", context)
    return private(response) if reader.organisation else _for_anybody(response)


@require_safe
def websocket_reference(request: HttpRequest) -> HttpResponse:
    """Show the frames of the websocket, and a client in two languages."""
    address = settings.PENSTOCK_PUBLIC_URL.replace("http", "ws", 1) + WEBSOCKET_PATH
    context = {
        "page": "websocket",
        "address": address,
        "frames": _frames(),
        "objects": _objects(),
        "python_client": client_code("websocket_client.py"),
        "javascript_client": client_code("websocket_client.js"),
        "ticket_seconds": TICKET_SECONDS,
        "max_frame_bytes": frames.MAX_FRAME_BYTES,
    }
    return _for_anybody(render(request, "dashboard/docs/websocket.html", context))


@cache
def client_code(name: str) -> str:
    """Return a client as the page shows it, which is as the tests run it."""
    return (_CLIENTS / name).read_text(encoding="utf-8").strip()


@cache
def _schemas() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components([struct for struct, _ in _FRAMES])
    return schemas


def _frames() -> list[dict[str, Any]]:
    return [
        {
            "type": struct.__struct_config__.tag,
            "sender": sender,
            "about": _schemas()[struct.__name__].get("description", ""),
            "fields": _type_first(fields_of(_schemas()[struct.__name__])),
        }
        for struct, sender in _FRAMES
    ]


def _objects() -> list[dict[str, Any]]:
    """Return what frames hold that is no frame."""
    frames_themselves = {struct.__name__ for struct, _ in _FRAMES}
    return [
        {"name": name, "about": schema.get("description", ""), "fields": fields_of(schema)}
        for name, schema in _schemas().items()
        if name not in frames_themselves
    ]


def _type_first(fields: list[Field]) -> list[Field]:
    return sorted(fields, key=lambda field: field.name != "type")


def _for_anybody(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = f"private, max-age={_CACHE_SECONDS}"
    patch_vary_headers(response, ["Cookie"])  # the theme's
    return response
