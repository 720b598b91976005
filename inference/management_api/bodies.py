"""What a client sends: one JSON object of known fields, or parameters of an address. Every field is
on an allow-list, the struct that is asked for; any other is refused by its name."""

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from rest_framework.request import Request

from inference.errors import BodyTooLarge, InvalidRequest
from inference.management_api.errors import LengthRequired, UnsupportedMediaType
from inference.openai_api.parsing import as_invalid_request

MAX_BODY_BYTES: Final = 64 * 1024

_T = TypeVar("_T", bound="Fields")


class Fields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of what can be sent. A field that may be left out has a default."""


class Nothing(Fields):
    """Of a call that takes no fields."""


def check_content_type(request: Request) -> None:
    """Check the content type before anything reads the body, as Django would if it were a form."""
    if not _has_body(request):
        return
    if request._request.content_type != "application/json":
        raise UnsupportedMediaType
    if not request.META.get("CONTENT_LENGTH"):
        raise LengthRequired("Send the body's length in the header Content-Length.")


def read_body(request: Request, kind: type[_T]) -> _T:
    """Return the body. Raises `InvalidRequest`, which names the wrong field."""
    data: bytes = request._request.read(MAX_BODY_BYTES + 1) if _has_body(request) else b"{}"
    if len(data) > MAX_BODY_BYTES:
        raise BodyTooLarge(f"The body may have at most {MAX_BODY_BYTES} bytes.")
    value = _decoded(data)
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be one JSON object.")
    return _converted(value, kind, data)


def read_query(request: Request, kind: type[_T]) -> _T:
    """Return the query parameters, each at most once. Raises `InvalidRequest`."""
    given: dict[str, str] = {}
    for name, values in request._request.GET.lists():
        if len(values) != 1:
            raise InvalidRequest(f"{name[:80]!r} is given more than once.", param=name[:80])
        given[name] = values[0]
    _check_texts(given)
    return _converted(given, kind, msgspec.json.encode(given), strict=False)


def given_fields(fields: Fields) -> dict[str, Any]:
    """Return the fields that were sent, for a change that leaves the others as they are."""
    return {
        name: value
        for name in fields.__struct_fields__
        if (value := getattr(fields, name)) is not msgspec.UNSET
    }


def _has_body(request: Request) -> bool:
    length = request.META.get("CONTENT_LENGTH") or "0"
    return length != "0" or "HTTP_TRANSFER_ENCODING" in request.META


def _decoded(data: bytes) -> Any:
    """Decode JSON more strictly than Python does: no field twice, no NaN, no text that PostgreSQL
    cannot hold."""
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
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)[:80]
        raise InvalidRequest(f"{twice!r} is given more than once.", param=_shown(twice))
    return fields


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


def _shown(text: str) -> str:
    return text.encode(errors="replace").decode()


def _converted(value: dict[str, Any], kind: type[_T], data: bytes, *, strict: bool = True) -> _T:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise as_invalid_request(str(error), data) from None
