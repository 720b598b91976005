"""Why a delivery was not taken, in words for programs and for people."""

from enum import StrEnum
from typing import Final


class Problem(StrEnum):
    STATUS = "status"
    REDIRECT = "redirect"
    GONE = "gone"
    TIMEOUT = "timeout"
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    BAD_ANSWER = "bad_answer"
    UNRESOLVABLE = "unresolvable"
    ADDRESS_REFUSED = "address_refused"
    SECRET_LOST = "secret_lost"  # noqa: S105 - a word, no secret
    ENDPOINT_DISABLED = "endpoint_disabled"
    NOT_SENT = "not_sent"


SENTENCES: Final[dict[Problem, str]] = {
    Problem.STATUS: "It answered with a status that is not 2xx.",
    Problem.REDIRECT: "It answered with a redirect, and redirects are not followed: change the "
    "endpoint's URL.",
    Problem.GONE: "It answered 410 Gone, so nothing more is sent to it.",
    Problem.TIMEOUT: "It did not answer in time.",
    Problem.CONNECT_FAILED: "No connection could be made, or it broke.",
    Problem.TLS_FAILED: "TLS failed; its certificate must be valid for the host of the URL.",
    Problem.BAD_ANSWER: "It answered with what is no HTTP/1.1.",
    Problem.UNRESOLVABLE: "Its host has no address.",
    Problem.ADDRESS_REFUSED: "Its host has an address that webhooks may not be sent to.",
    Problem.SECRET_LOST: "Its secret was made under another secret of the service; rotate it.",
    Problem.ENDPOINT_DISABLED: "The endpoint was disabled before it was delivered.",
    Problem.NOT_SENT: "It could not be sent through a fault of the service; its operators see why.",
}
