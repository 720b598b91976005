"""The document, made once a process: making it takes a second or two, and it changes with the code
alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from threading import Lock
from typing import Any, Final

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

FORMS: Final = ("yaml", "json")

_RENDERERS: Final[dict[str, Any]] = {"yaml": OpenApiYamlRenderer, "json": OpenApiJsonRenderer}
_lock: Final = Lock()


@dataclass(frozen=True, kw_only=True)
class File:
    """The document in one form, and its ETag."""

    content: bytes
    etag: str


def document() -> Mapping[str, Any]:
    """Return the OpenAPI document, as JSON would hold it."""
    with _lock:
        return _made()


def file(form: str) -> File:
    """Return the document as `yaml` or `json`."""
    made = document()
    with _lock:
        return _rendered(form, id(made))


@cache
def _made() -> Mapping[str, Any]:
    made: Mapping[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


@cache
def _rendered(form: str, _made_id: int) -> File:
    content: bytes = _RENDERERS[form]().render(_made(), renderer_context={})
    return File(content=content, etag=f'"{sha256(content).hexdigest()[:32]}"')
