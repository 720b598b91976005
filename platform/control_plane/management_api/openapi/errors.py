"""How any call may be refused: OpenAI's error envelope, its codes, and a response for each
status."""

from collections.abc import Iterable
from typing import Any, Final

from gpu_workers.protocol.policy import LimitName
from tenants.access.entry_policy import OWN_SIGN_IN, RECENT_PROOF, SIGN_ON
from tenants.access.invitations.accepting import InvitationRefused, Refusal
from tenants.models.caps import CAP_WORDS

# What each `code` says. A test finds a code that is raised and not told here.
CODES: Final[dict[str, str]] = {
    # 400
    "invalid_request": "Something of the request is not what the API takes; `param` names it.",
    "unknown_field": "The request has a field that the API does not know.",
    "missing_field": "A field that is required is missing.",
    "unsupported_field": "The API knows the field and does not support it.",
    "bad_cursor": "The cursor is none of this list's.",
    "bad_signature": "A payment event is not signed by the payment provider.",
    "bad_idempotency_key": "The header `Idempotency-Key` holds none.",
    "body_timeout": "The body did not arrive in time.",
    "context_length_exceeded": "Prompt and output are longer than the model or the tier allows.",
    "model_capability_missing": "The model cannot do what the request asks for.",
    "too_many_choices": "Prompts and `n` ask for more choices than one request may have.",
    "answer_too_large": "The answer would be larger than one request may ask for.",
    "structure_too_large": "A schema, pattern or grammar is larger than one request may have.",
    "structure_too_costly": "A schema, pattern or grammar takes too long to follow.",
    "structure_impossible": "No text fits the schema, pattern or grammar.",
    "prompt_beyond_reservation": "The prompt has more tokens than its text can have.",
    "upload_not_pending": "The upload is completed, cancelled, expired or used.",
    "upload_too_large": "More bytes than the tier allows, a part may have, or were declared.",
    "wrong_parts": "The parts that are named do not make the file that was declared.",
    "wrong_md5": "The parts have another MD5 than the call says.",
    "too_many_orders": "The MD5 of no other order of the upload's parts is computed.",
    "repeated_authorization": "The request has more than one Authorization header.",
    # 401
    "invalid_api_key": "There is no such API key.",
    "api_key_expired": "The API key has expired.",
    "api_key_revoked": "The API key was revoked.",
    "api_key_rotated": "The API key was rotated, and its overlap is over.",
    "not_signed_in": "There is neither a session nor an API key.",
    "invalid_credentials": "Email address or password is wrong.",
    "second_factor_required": "The account or the organisation asks for a second factor, too.",
    "wrong_second_factor": "The code is wrong or was used before.",
    # 403
    "forbidden": "The caller is known and may not do this.",
    "missing_role": "The caller's role may not do this.",
    "missing_scope": "The API key lacks the scope for this.",
    "address_not_allowed": "The API key may not be used from this address.",
    "clear_text_refused": "The request came over http; use https.",
    "csrf_failed": "The session's change came without its CSRF token.",
    "not_while_acting": "An operator who acts as a member may not do this.",
    **{f"too_many_{cap}": f"The tier allows no more {words}." for cap, words in CAP_WORDS.items()},
    "adapter_not_allowed": "The API key lists adapters, and this is none of them.",
    "tenant_suspended": "The organisation is suspended.",
    OWN_SIGN_IN: "Another organisation's single sign-on opened the session, or it has run out.",
    RECENT_PROOF: "The change takes a sign-in of the last ten minutes.",
    SIGN_ON: "The organisation asks for its single sign-on, which this session has not.",
    # 404 to 415
    "not_found": "It does not exist, or is not the caller's to see.",
    "model_not_found": "There is no such model, or it is not the caller's to use.",
    "method_not_allowed": "The address does not take this method.",
    "not_acceptable": "The answer cannot be given in a form that the request accepts.",
    "slow_reader": "The stream was read too slowly.",
    "conflict": "It cannot be, given what is there already.",
    "name_taken": "There is an adapter with this name.",
    "too_many_adapters": "There are as many adapters as the tier allows.",
    "too_many_pinned_adapters": "There are as many pinned adapters as the tier allows.",
    "too_many_versions": "The adapter has as many versions as one may have.",
    "too_many_adapter_versions": "Adapters have as many versions as the tier allows together.",
    "adapter_storage_full": "The adapter's bytes are more than what the tier leaves.",
    "adapter_archived": "The adapter is archived; create it anew first.",
    "version_not_ready": "The version is in no state for this.",
    "version_has_traffic": "Requests are answered by this version; point the traffic elsewhere.",
    "version_state": "The version has gone on meanwhile.",
    "last_owner": "An organisation keeps an owner.",
    "already_owner": "The member owns the organisation already.",
    "already_invited": "The address has an open invitation already.",
    "no_email": "The service sends no e-mail, so that nobody can be invited.",
    "no_way_in": "An owner who can sign in without the provider must remain.",
    "no_provider": "Single sign-on is not set up, or nobody signed on with it yet.",
    "sign_on_demanded": "People are asked for single sign-on; stop asking for it first.",
    "quota_exists": "There is a quota of this limit at this place.",
    "domain_exists": "The organisation has the domain already.",
    "domain_taken": "Another organisation has proven the domain.",
    "too_many_domains": "There are as many mail domains as an organisation may have.",
    "record_not_found": "The DNS has no such record yet.",
    "dns_unavailable": "The DNS gave no answer.",
    "endpoint_disabled": "The webhook endpoint is disabled.",
    "too_many_tests": "There were as many test events in the last hour as may be.",
    "idempotency_key_in_use": "A call with this `Idempotency-Key` is still running.",
    "precondition_failed": "The record is not as `If-Match` says.",
    "idempotency_key_reused": "The `Idempotency-Key` was used for another call.",
    **{
        reason.value: InvitationRefused(reason).message
        for reason in Refusal
        if reason is not Refusal.SUSPENDED  # told above
    },
    "length_required": "The body comes without its length.",
    "body_too_large": "The body is too large.",
    "unsupported_media_type": "The body is not application/json, or not the form that it must be.",
    # 429
    "rate_limit_exceeded": "The caller asks too often.",
    **{
        f"{limit.value}_exceeded": f"The limit {limit.value} is reached."
        for limit in LimitName
        if limit is not LimitName.BALANCE
    },
    "insufficient_quota": "The money is spent: that of the period, or all credit.",
    "request_exceeds_limit": "This request alone is more than the limit.",
    "adapter_load_limit_reached": "Loading adapters has taken as long as the tier allows in a "
    "minute, and no worker has this one in memory.",
    "saturated": "The model is saturated, and the project's choice is to refuse.",
    "queue_full": "The model's queue is full.",
    "queue_memory_full": "The queues hold as many bytes as they may.",
    "queue_memory_share_full": "The organisation's requests fill their share of the queues.",
    "storage_limit_reached": "The organisation has stored as much as it may.",
    "too_many_exports": "As many files of the organisation as may be are being read already.",
    "too_many_attempts": "Too many attempts to sign in, or too many invalid keys.",
    # 500 to 503
    "internal_error": "A fault of the service; `X-Request-Id` finds it in the log.",
    "worker_lost": "The worker that held the request died.",
    "attempts_exhausted": "Several workers died while they held the request.",
    "stream_broken": "Output was lost between worker and client.",
    "service_unavailable": "Nobody could take the request in time.",
    "policy_unavailable": "The service cannot check anybody just now.",
    "no_worker": "No worker runs for the model, and none is expected.",
    "queue_timeout": "No worker took the request before its tier's deadline.",
    "engine_overloaded": "The engine took no more requests.",
    "generation_cut_short": "The generation ended early.",
    "structures_unavailable": "The worker can check no schema or grammar just now.",
    "structures_waiting": "Too many schemas or grammars wait to be checked.",
    "usage_backlog": "Usage waits to be recorded; nothing more is taken for now.",
    "gateway_lost": "The gateway of the request died.",
    "cancelled": "The request was ended early, and not by its client.",
    "md5_pending": "The MD5 of an upload's parts is still being computed.",
    "blob_store_away": "The store of large files does not answer.",
    "blob_store_full": "The store of large files takes nothing more.",
    "disk_full": "A disk that what comes in is written to takes nothing more.",
    # of the websocket alone
    "invalid_frame": "The frame is not understood.",
    "frame_too_large": "The frame is larger than 64 KiB.",
    "duplicate_id": "The id is in use on this connection.",
    "unknown_request": "No request of this id is open on the connection.",
    "connection_requests_exceeded": "The connection has as many requests open as it may.",
    "too_many_websockets": "The tenant has as many websockets open as its tier allows.",
}

_TYPES: Final = (
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "rate_limit_error",
    "insufficient_quota",
    "server_error",
)

# By status: the component's name, and what it means.
_STATUSES: Final[dict[int, tuple[str, str]]] = {
    400: ("BadRequest", "The request is not what the API takes."),
    401: ("Unauthorized", "No credential, or one that does not work."),
    403: ("Forbidden", "The caller is known and may not do this."),
    404: ("NotFound", "It does not exist, or is not the caller's to see: the two look the same."),
    406: ("NotAcceptable", "The answer cannot be given in a form that `Accept` names."),
    408: ("SlowReader", "The answer was read too slowly."),
    409: ("Conflict", "It cannot be, given what is there already."),
    411: ("LengthRequired", "The body comes without its length."),
    412: ("PreconditionFailed", "The record has changed since: `If-Match` names an older `ETag`."),
    413: ("BodyTooLarge", "The body is too large."),
    415: ("UnsupportedMediaType", "The body is of another type than the call takes."),
    422: ("IdempotencyKeyReused", "`Idempotency-Key` came with another body before."),
    429: ("TooManyRequests", "A limit of the caller is reached; `Retry-After` says until when."),
    500: ("InternalError", "A fault of the service."),
    502: ("WorkerLost", "The request was lost on its way."),
    503: ("Unavailable", "Nothing is wrong with the request; try again."),
}

_REQUEST_ID: Final = {
    "X-Request-Id": {
        "description": "Names the request; support asks for it.",
        "schema": {"type": "string"},
    }
}
_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "In how many seconds to try again.",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    }
}


def responses(statuses: Iterable[int]) -> dict[str, dict[str, str]]:
    """Return references to the responses of these statuses, as an operation lists them."""
    return {
        str(status): {"$ref": f"#/components/responses/{_STATUSES[status][0]}"}
        for status in sorted(statuses)
    }


def error_components() -> dict[str, dict[str, Any]]:
    """Return the envelope and the responses, as the document's components."""
    return {
        "schemas": {
            "Error": _ENVELOPE,
            "ErrorCode": {
                "type": "string",
                "enum": list(CODES),
                "description": "\n".join(f"- `{code}`: {text}" for code, text in CODES.items()),
            },
        },
        "responses": {name: _response(status, text) for status, (name, text) in _STATUSES.items()},
    }


_ENVELOPE: Final[dict[str, Any]] = {
    "type": "object",
    "description": "OpenAI's error envelope, of every refusal.",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
            "properties": {
                "message": {"type": "string", "description": "What happened and what to do."},
                "type": {"type": "string", "enum": list(_TYPES)},
                "param": {
                    "type": ["string", "null"],
                    "description": "The field it is about: `scopes[0]`.",
                },
                "code": {
                    "oneOf": [{"$ref": "#/components/schemas/ErrorCode"}, {"type": "null"}],
                    "description": "For programs: it stays, while sentences may change.",
                },
                "penstock": {
                    "type": "object",
                    "description": "The limit behind a 429; `reset_seconds` null: waiting does "
                    "not help.",
                    "required": ["limit", "scope", "used", "limit_value", "reset_seconds"],
                    "properties": {
                        "limit": {"type": "string"},
                        "scope": {"type": "string"},
                        "used": {"type": "integer"},
                        "limit_value": {"type": "integer"},
                        "reset_seconds": {"type": ["integer", "null"]},
                    },
                },
            },
        }
    },
}


def _response(status: int, text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {
        "description": text,
        "headers": _REQUEST_ID | (_RETRY_AFTER if status in {429, 503} else {}),
        "content": {"application/json": {"schema": schema}},
    }
