"""What a client sends, read more strictly than Python and DRF do."""

import json
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final, NoReturn

from django.http import QueryDict
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from control_plane.management_api.errors import UnsupportedMediaType
from inference.errors import BodyTooLarge, InvalidRequest, LengthRequired

MAX_BODY_BYTES: Final = 64 * 1024
_SHOWN_CHARACTERS: Final = 80


class StrictJSONParser(BaseParser):
    """One JSON object in UTF-8: no field twice, no NaN, no text that PostgreSQL cannot hold."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the object. Raises `BodyTooLarge`, and `InvalidRequest`, which says what is
        wrong."""
        data: bytes = stream.read(MAX_BODY_BYTES + 1)
        if len(data) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"The body may have at most {MAX_BODY_BYTES} bytes.")
        value = _decoded(data)
        if not isinstance(value, dict):
            raise InvalidRequest("The body must be one JSON object.")
        return value


def check_body_headers(request: Request) -> None:
    """Check what the headers say of a body before anything reads it, as Django would if it were a
    form. Raises `UnsupportedMediaType` and `LengthRequired`."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length == "0" and "HTTP_TRANSFER_ENCODING" not in request.META:
        return
    if request._request.content_type != StrictJSONParser.media_type:
        raise UnsupportedMediaType
    if not request.META.get("CONTENT_LENGTH"):
        raise LengthRequired("Send the body's length in the header Content-Length.")


def single_values(query: QueryDict) -> dict[str, str]:
    """Return the parameters of an address, each given once. Raises `InvalidRequest`."""
    for name, values in query.lists():
        if len(values) != 1:
            raise _given_twice(name)
    given = {name: str(value) for name, value in query.items()}
    _check_texts(given)
    return given


def _decoded(data: bytes) -> Any:
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant
        )
        _check_texts(value)
    except UnicodeDecodeError:
        raise InvalidRequest("The body must be JSON in UTF-8.") from None
    except RecursionError:
        raise InvalidRequest("The body's JSON is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body must be one JSON object: {error}.") from None
    except ValueError:  # a whole number of thousands of digits
        raise InvalidRequest("The body holds a number that is too large.") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise _given_twice(name)
        fields[name] = value
    return fields


def _given_twice(name: str) -> InvalidRequest:
    shown = name[:_SHOWN_CHARACTERS]
    # Half of a surrogate pair, which JSON can name, cannot be told in UTF-8.
    param = shown.encode(errors="replace").decode()
    return InvalidRequest(f"{shown!r} is given more than once.", param=param)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not JSON.")


def _check_texts(value: Any) -> None:
    """Refuse NUL, which PostgreSQL cannot hold, and half a surrogate pair, which is no text."""
    if isinstance(value, str):
        if "\x00" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InvalidRequest("A text holds a NUL or half of a surrogate pair.")
    elif isinstance(value, dict):
        _check_all(value.keys())
        _check_all(value.values())
    elif isinstance(value, list):
        _check_all(value)


def _check_all(values: Iterable[Any]) -> None:
    for value in values:
        _check_texts(value)
