"""Why a request was refused, in words, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import IN_NANOS


class Place(StrEnum):
    """Where it is changed, or looked up."""

    LIMITS = "limits"
    BILLING = "billing"
    KEY = "key"
    PROJECT = "project"
    API = "API"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do, as a sentence, and where."""

    text: str
    place: Place | None = None


# The words of a reason's code. What is not here is shown as its code.
_REASONS: Final = {
    **{
        f"{name.value}_exceeded": words
        for name, words in {
            LimitName.REQUESTS_PER_MINUTE: "Too many requests a minute",
            LimitName.TOKENS_PER_MINUTE: "Too many tokens a minute",
            LimitName.CONCURRENT_REQUESTS: "Too many requests at once",
            LimitName.TOKENS_PER_DAY: "Tokens of the day used up",
            LimitName.TOKENS_PER_MONTH: "Tokens of the month used up",
        }.items()
    },
    "insufficient_quota": "Budget or credit used up",
    "request_exceeds_limit": "Request larger than its limit",
    "rate_limit_exceeded": "Too many requests",
    "connection_requests_exceeded": "Too many requests on one connection",
    "too_many_websockets": "Too many websockets",
    "saturated": "Model saturated",
    "adapter_load_limit_reached": "Too much loading of adapters",
    "queue_full": "Queue full",
    "queue_memory_full": "Queue out of memory",
    "queue_memory_share_full": "Share of the queue's memory used up",
    "usage_backlog": "Usage waits to be recorded",
    "no_worker": "No worker for the model",
    "service_unavailable": "Service unavailable",
    "policy_unavailable": "Service starting",
    "internal_error": "Fault of the service",
    "invalid_request": "Invalid request",
    "unknown_field": "Unknown parameter",
    "missing_field": "Parameter missing",
    "unsupported_field": "Parameter not supported",
    "context_length_exceeded": "Longer than the context",
    "answer_too_large": "Answer too large",
    "too_many_choices": "Too many choices",
    "model_capability_missing": "Model cannot do it",
    "body_too_large": "Body too large",
    "body_timeout": "Body too slow",
    "invalid_frame": "Invalid websocket frame",
    "frame_too_large": "Websocket frame too large",
    "duplicate_id": "Id in use on the connection",
    "model_not_found": "Unknown model",
    "invalid_api_key": "Invalid key",
    "api_key_revoked": "Revoked key",
    "api_key_expired": "Expired key",
    "api_key_rotated": "Rotated key",
    "missing_scope": "Key lacks the scope",
    "address_not_allowed": "Address not on the key's list",
    "forbidden": "Not permitted",
    "tenant_suspended": "Organisation suspended",
}
_MONEY: Final = {
    LimitName.BALANCE: "Credit used up",
    LimitName.SPEND_PER_DAY: "Budget of the day used up",
    LimitName.SPEND_PER_MONTH: "Budget of the month used up",
}
_WHOSE: Final = {
    "key": "of the key",
    "project": "of the project",
    "tenant": "of the organisation",
    "tier": "of the tier",
}
CODES: Final = tuple(sorted(_REASONS, key=lambda code: _REASONS[code].lower()))

_LATER: Final = Advice(
    text="Nothing to change: send it again later, as most clients do themselves."
)
_AS_THE_API_SAYS: Final = Advice(
    text="Change the request; the caller's answer said what of it.", place=Place.API
)
_ADVICE: Final = {
    "request_exceeds_limit": Advice(
        text="Ask for fewer tokens or choices, or raise the limit: waiting does not help.",
        place=Place.LIMITS,
    ),
    "connection_requests_exceeded": Advice(
        text="Wait for requests of the connection to end, or open another."
    ),
    "too_many_websockets": Advice(
        text="Send more requests on each connection, and close what is not used."
    ),
    "saturated": Advice(
        text="Let the project wait or take a smaller model when a model is saturated.",
        place=Place.PROJECT,
    ),
    "queue_memory_share_full": Advice(text="Send fewer long prompts at once."),
    "adapter_load_limit_reached": Advice(
        text="Ask for fewer adapters at a time, or have those that are asked for the most pinned."
    ),
    "model_not_found": Advice(
        text="Name a model that GET /v1/models lists for this key.", place=Place.KEY
    ),
    "api_key_revoked": Advice(text="Give the caller another key.", place=Place.KEY),
    "api_key_expired": Advice(text="Give the caller a new key.", place=Place.KEY),
    "api_key_rotated": Advice(text="Give the caller the newer key.", place=Place.KEY),
    "missing_scope": Advice(text="Use a key that has the scope.", place=Place.KEY),
    "address_not_allowed": Advice(
        text="Call from an address on the key's list, or use another key.", place=Place.KEY
    ),
    "tenant_suspended": Advice(text="Ask the operator of this service."),
    "internal_error": Advice(text="Tell the operator of this service the request id."),
}
_OF_SCOPE: Final = {
    "key": Advice(text="Raise the limit of this key, or send less with it.", place=Place.LIMITS),
    "project": Advice(
        text="Raise the limit of this project, or send less in it.", place=Place.LIMITS
    ),
    "tenant": Advice(
        text="Send less, or ask the operator of this service to raise the limit.",
        place=Place.LIMITS,
    ),
    "tier": Advice(
        text="Send less, or ask the operator of this service for another tier.",
        place=Place.LIMITS,
    ),
}


def reason_word(code: str, limit: str = "") -> str:
    """Say in a few words why; of money that is used up, which."""
    if code == "insufficient_quota" and limit in IN_NANOS:
        return _MONEY[LimitName(limit)]
    return _REASONS.get(code, code.replace("_", " "))


def whose_word(scope: str) -> str:
    return _WHOSE.get(scope, "")


def advice(code: str, limit: str, scope: str, status: int) -> Advice:
    """Return what to do about a refusal."""
    if limit == LimitName.BALANCE:
        return Advice(text="Top up the credit.", place=Place.BILLING)
    if code in _ADVICE:
        return _ADVICE[code]
    if scope in _OF_SCOPE:
        return _OF_SCOPE[scope]
    return _LATER if status >= 500 or status == 429 else _AS_THE_API_SAYS
