"""Everything that can go wrong on the management API, as one error of OpenAI's envelope."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from django.core.exceptions import (
    NON_FIELD_ERRORS,
    ObjectDoesNotExist,
    RequestDataTooBig,
    SuspiciousOperation,
    ValidationError,
)
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions as drf
from rest_framework.settings import api_settings

from gpu_workers.protocol.request_id import new_request_id
from inference.errors import (
    BodyTooLarge,
    Forbidden,
    InferenceError,
    InvalidRequest,
    LimitReached,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
    Unavailable,
    as_inference_error,
)
from inference.openai_api.responses import error_json
from tenants.errors import Conflict, NotPermitted
from tenants.exports import RETRY_SECONDS, TooManyExports
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

    def __init__(self, message: str = "Send the body as application/json.") -> None:
        super().__init__(message)


class PreconditionFailed(InferenceError):
    status = 412
    type = "invalid_request_error"
    code = "precondition_failed"

    def __init__(self, etag: str) -> None:
        super().__init__(
            f"The record is not as you saw it: its ETag is {etag} now. Read it again, and send the "
            "header If-Match with its ETag.",
            param="If-Match",
        )


class IdempotencyKeyInUse(ResourceConflict):
    code = "idempotency_key_in_use"

    def __init__(self) -> None:
        super().__init__(
            "A call with this Idempotency-Key is still running; repeat it once that has ended.",
            param="Idempotency-Key",
            retry_after_seconds=1,
        )


class IdempotencyKeyReused(InferenceError):
    status = 422
    type = "invalid_request_error"
    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__(
            "This Idempotency-Key was used for another call: repeat that one unchanged, or send a "
            "new key.",
            param="Idempotency-Key",
        )


class TooManyCalls(LimitReached):
    """Of the management API, by one caller; `/v1` has limits of its own."""


class TooManyFiles(LimitReached):
    code = "too_many_exports"


class TooManyAttempts(LimitReached):
    code = "too_many_attempts"


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> HttpResponse:
    """Answer whatever was raised in a view: REST framework's `EXCEPTION_HANDLER`."""
    return answer(api_error(error))


def api_error(error: Exception) -> InferenceError:
    """Return the error that the caller gets; what is not its business is logged instead."""
    match error:
        case Http404() | ObjectDoesNotExist():
            return NotFound(NOTHING_HERE)
        case drf.APIException():
            return _of_framework(error)
        case NotPermitted():
            is_named = error.code != NotPermitted.code
            return Forbidden(
                error.message, param=error.param, code=error.code if is_named else None
            )
        case TooManyExports():
            return TooManyFiles(error.message, retry_after_seconds=RETRY_SECONDS)
        case Conflict():
            return ResourceConflict(error.message, param=error.param, code=error.code)
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


def answer(error: InferenceError) -> HttpResponse:
    """Render the error as an answer, without the headers that every answer of the API has."""
    wire = error.to_wire()
    response = HttpResponse(error_json(wire), status=wire.status, content_type="application/json")
    if wire.retry_after_seconds is not None:
        response["Retry-After"] = str(wire.retry_after_seconds)
    if wire.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


def finish(response: _Answer) -> _Answer:
    """Set the headers of every answer of the API. The request id is always ours."""
    response["Cache-Control"] = "no-store"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Request-Id"] = new_request_id()
    return response


@csrf_exempt
def nothing_here(_request: HttpRequest) -> HttpResponse:
    """Answer what is no address, for everybody and with every method."""
    return finish(answer(NotFound(NOTHING_HERE)))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django refused before a view was called, such as a foreign Host, in whose words
    the address asks for."""
    if not request.path.startswith("/api/v1/"):
        return defaults.bad_request(request, exception)
    return finish(answer(InvalidRequest("The request's headers or address are not acceptable.")))


def _of_framework(error: drf.APIException) -> InferenceError:
    """Convert what REST framework refuses by itself."""
    match error:
        case drf.NotFound():
            return NotFound(NOTHING_HERE)
        case drf.NotAuthenticated():
            return Unauthenticated(
                "Sign in, or send the header `Authorization: Bearer <key>`.", code="not_signed_in"
            )
        case drf.NotAcceptable():
            return NotAcceptable("This API answers in application/json; accept that.")
        case drf.UnsupportedMediaType():
            return UnsupportedMediaType()
        case drf.MethodNotAllowed():
            return MethodNotAllowed(str(error.detail))
        case drf.PermissionDenied():
            is_named = error.get_codes() != error.default_code
            return Forbidden(str(error.detail), code=str(error.get_codes()) if is_named else None)
        case drf.Throttled():
            wait = int(getattr(error, "wait", None) or 1)
            return TooManyCalls(
                f"Too many calls by this caller; try again in {wait} s.", retry_after_seconds=wait
            )
        case drf.ValidationError():
            return _of_fields(error.detail)
        case _:
            return as_inference_error(error)


def _of_fields(detail: Any) -> InvalidRequest:
    """Convert the first thing that a serializer found."""
    path, problem = _first(detail)
    match problem.code:
        case "unknown_field":
            return InvalidRequest(str(problem), param=path, code="unknown_field")
        case "required":
            return InvalidRequest(f"{path!r} is required.", param=path, code="missing_field")
        case _:
            text = f"{path!r}: {problem}" if path else str(problem)
            return InvalidRequest(text, param=path or None)


def _first(detail: Any, path: str = "") -> tuple[str, drf.ErrorDetail]:
    """Return the first problem and where it is: `scopes[0]`, `place.city`."""
    if isinstance(detail, list):
        return _first(detail[0], path)
    if not isinstance(detail, dict):
        return path, detail
    step, inner = next(iter(detail.items()))
    if step == api_settings.NON_FIELD_ERRORS_KEY:
        return _first(inner, path)
    if isinstance(step, int):
        return _first(inner, f"{path}[{step}]")
    return _first(inner, f"{path}.{step}" if path else step)


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
