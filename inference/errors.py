"""The errors of inference, one family. The class carries HTTP status, type, code and headers;
doors render it in OpenAI's envelope; nobody builds error JSON by hand."""

from typing import ClassVar

import msgspec
import structlog
from prometheus_client import Counter
from redis.exceptions import RedisError

from gpu_workers.protocol.messages import LimitDetail, WireError
from gpu_workers.protocol.policy import Caller

REDIS_ERRORS = Counter("penstock_gateway_redis_errors_total", "Calls that Redis did not answer.")

_log = structlog.get_logger(__name__)


class InferenceError(Exception):
    """Base of what a caller of the inference API may be told. `headers` go with an HTTP answer.

    For the count of refusals: `caller` is who is refused, where only the error knows;
    `is_on_record`: the request's end comes on record as usage, so that it is no refusal;
    `quotes_caller`: the message may repeat what the caller sent, and is kept nowhere.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = "internal_error"
    quotes_caller: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_seconds = retry_after_seconds
        self.headers: tuple[tuple[str, str], ...] = ()
        self.caller: Caller | None = None
        self.is_on_record = False
        self._code = code

    def to_wire(self) -> WireError:
        """Return the error as it travels: the one form that doors render."""
        return WireError(
            status=self.status,
            message=self.message,
            type=self.type,
            code=self._code or self.code,
            param=self.param,
            retry_after_seconds=self.retry_after_seconds,
        )


class InvalidRequest(InferenceError):
    """The request is not what the API takes."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class BeyondBounds(InvalidRequest):
    """It asks for more than its model, its tier or one answer allows; the message tells numbers and
    names of ours alone."""

    quotes_caller = False


class Unauthenticated(InferenceError):
    """No key, or one that does not work."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    quotes_caller = False


class Forbidden(InferenceError):
    """The caller is known and may not do this."""

    status = 403
    type = "permission_error"
    code = "forbidden"
    quotes_caller = False


class ClearTextRefused(Forbidden):
    """The request came over http from elsewhere; its key may have been read."""

    code = "clear_text_refused"


class RepeatedAuthorization(InvalidRequest):
    """More than one `Authorization` header came."""

    code = "repeated_authorization"


class NotFound(InferenceError):
    """Unknown, or not the caller's to see: the two look the same."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class ModelCapabilityMissing(InvalidRequest):
    """The request asks for what its model was not declared to be capable of."""

    code = "model_capability_missing"
    quotes_caller = False


class MethodNotAllowed(InferenceError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class LengthRequired(InferenceError):
    status = 411
    type = "invalid_request_error"
    code = "length_required"


class BodyTooLarge(InferenceError):
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"
    quotes_caller = False


class LimitReached(InferenceError):
    """A limit of the caller; the message names limit, scope, used and reset. `should_retry` False
    keeps clients from retrying by themselves."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    quotes_caller = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after_seconds: int | None = None,
        retry_after_ms: int | None = None,
        should_retry: bool | None = None,
        limit: LimitDetail | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message, code=code, retry_after_seconds=retry_after_seconds)
        self.retry_after_ms = retry_after_ms
        self.should_retry = should_retry
        self.limit = limit
        self.headers = headers

    def to_wire(self) -> WireError:
        return msgspec.structs.replace(
            super().to_wire(),
            retry_after_ms=self.retry_after_ms,
            should_retry=self.should_retry,
            limit=self.limit,
        )


class QuotaExhausted(LimitReached):
    """The money is spent, that of the period or all credit; OpenAI's own words for it."""

    type = "insufficient_quota"
    code = "insufficient_quota"


class ConnectionFull(LimitReached):
    """A websocket has as many requests open as it may have; the message names the one too many."""

    code = "connection_requests_exceeded"
    quotes_caller = True


class TooManyWebsockets(LimitReached):
    """The tenant has as many websockets open as its tier allows."""

    code = "too_many_websockets"


class Unavailable(InferenceError):
    """Nothing is wrong with the request; nobody could take it in time."""

    status = 503
    type = "server_error"
    code = "service_unavailable"
    quotes_caller = False


class NoWorker(Unavailable):
    """The model has no worker, and none is expected: waiting would not help, so clients that retry
    by themselves are told not to."""

    code = "no_worker"

    def to_wire(self) -> WireError:
        return msgspec.structs.replace(super().to_wire(), should_retry=False)


class PolicyUnavailable(Unavailable):
    """There is no policy snapshot to check anybody against."""

    code = "policy_unavailable"


class PolicyLost(PolicyUnavailable):
    """There was one, and Redis has lost it: it will be back in a moment."""


class WorkerLost(InferenceError):
    """The worker that held the request died."""

    status = 502
    type = "server_error"
    code = "worker_lost"


class AttemptsExhausted(InferenceError):
    """Several workers died, one after another, while they held the request."""

    status = 502
    type = "server_error"
    code = "attempts_exhausted"


class StreamBroken(InferenceError):
    """Output was lost between worker and client, and cannot be given whole."""

    status = 502
    type = "server_error"
    code = "stream_broken"


class SlowReader(InferenceError):
    """The client read its stream so slowly that the unread part grew beyond its cap."""

    status = 408
    type = "invalid_request_error"
    code = "slow_reader"


class InternalError(InferenceError):
    """A fault of ours; the request id finds it in the log."""

    quotes_caller = False


class Cancelled(InferenceError):
    """The request was ended before it was complete, and not by its client."""

    status = 503
    type = "server_error"
    code = "cancelled"


def as_inference_error(error: Exception) -> InferenceError:
    """Return the error that the caller gets of any failure; internals are logged instead."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, RedisError | OSError):
        REDIS_ERRORS.inc()
        _log.warning("redis_does_not_answer", reason=repr(error))
        return Unavailable("The service is not reachable inside; try again.", retry_after_seconds=1)
    _log.error("request_failed", exc_info=error)
    return InternalError("An internal error; tell the operator the request id.")
