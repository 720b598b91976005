"""Everything that can go wrong on the management API, as one error of OpenAI's envelope."""

from typing import Final, TypeVar

from django.core.exceptions import (
    NON_FIELD_ERRORS,
    ObjectDoesNotExist,
    RequestDataTooBig,
    SuspiciousOperation,
    ValidationError,
)
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions as drf

from gpu_workers.protocol.request_id import new_request_id
from inference.errors import (
    BodyTooLarge,
    Forbidden,
    InferenceError,
    InvalidRequest,
    LimitReached,
    MethodNotAllowed,
    NotFound,
    Unavailable,
    as_inference_error,
)
from inference.openai_api.responses import error_json
from tenants.errors import Conflict, NotPermitted
from tenants.pagination import BadCursor

_Answer = TypeVar("_Answer", bound=HttpResponse)

# One sentence for what does not exist and what is not the caller's to see.
NOTHING_HERE: Final = "Not found, or you do not have access."


class ResourceConflict(InferenceError):
    """It cannot be, given what is there already."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class NotAcceptable(InferenceError):
    status = 406
    type = "invalid_request_error"
    code = "not_acceptable"


class UnsupportedMediaType(InferenceError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class LengthRequired(InferenceError):
    status = 411
    type = "invalid_request_error"
    code = "length_required"


class TooManyAttempts(LimitReached):
    code = "too_many_attempts"


def api_error(error: Exception) -> InferenceError:
    """Return the error that the caller gets; what is not its business is logged instead."""
    match error:
        case Http404() | drf.NotFound() | ObjectDoesNotExist():
            return NotFound(NOTHING_HERE)
        case drf.MethodNotAllowed():
            return MethodNotAllowed(str(error.detail))
        case drf.NotAcceptable():
            return NotAcceptable("This API answers in application/json; accept that.")
        case drf.PermissionDenied():
            return Forbidden(str(error.detail), code="csrf_failed")
        case NotPermitted():
            return Forbidden(error.message, param=error.param)
        case Conflict():
            return ResourceConflict(error.message, param=error.param)
        case BadCursor():
            return InvalidRequest(str(error), param="cursor", code="bad_cursor")
        case ValidationError():
            return _of_validation(error)
        case IntegrityError():
            return ResourceConflict("This conflicts with what is there already.")
        case RequestDataTooBig():
            return BodyTooLarge("The body is too large.")
        case DataError() | SuspiciousOperation():
            return InvalidRequest("The request holds a value that cannot be stored or read.")
        case OperationalError() | InterfaceError():
            return _unavailable(error)
        case _:
            return as_inference_error(error)


def answer(error: InferenceError, *, allow: str = "") -> HttpResponse:
    """Render the error as an answer, without the headers that every answer of the API has."""
    wire = error.to_wire()
    response = HttpResponse(error_json(wire), status=wire.status, content_type="application/json")
    if wire.retry_after_seconds is not None:
        response["Retry-After"] = str(wire.retry_after_seconds)
    if wire.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if wire.status == 405:
        response["Allow"] = allow
    return response


def finish(response: _Answer) -> _Answer:
    """Set the headers of every answer of the API. The request id is always ours."""
    response["Cache-Control"] = "no-store"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Request-Id"] = new_request_id()
    return response


def bad_request(_request: HttpRequest, error: Exception) -> HttpResponse:
    """Convert what Django refused before a view was called, such as a foreign Host."""
    return finish(answer(InvalidRequest("The request's headers or address are not acceptable.")))


def _of_validation(error: ValidationError) -> InferenceError:
    """Convert the first thing that is wrong. A value that is already taken is a conflict."""
    field, errors = next(iter(_by_field(error).items()))
    first = errors[0]
    param = None if field == NON_FIELD_ERRORS else field
    text = " ".join(first.messages)
    if first.code in {"unique", "unique_together"}:
        return ResourceConflict(text, param=param)
    return InvalidRequest(f"{param!r}: {text}" if param else text, param=param)


def _by_field(error: ValidationError) -> dict[str, list[ValidationError]]:
    if hasattr(error, "error_dict"):
        return error.error_dict
    return {NON_FIELD_ERRORS: error.error_list}


def _unavailable(error: Exception) -> InferenceError:
    as_inference_error(OSError(str(error)))  # counts and logs it
    return Unavailable("The service is not reachable inside; try again.", retry_after_seconds=1)
