"""Why somebody is not signed in: a word for the audit log, a sentence for them."""

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """For whoever set the provider up, who reads them in the audit log."""

    CANCELLED = "cancelled"  # at the provider
    PROVIDER_ERROR = "provider_error"  # it answered with an error of its own
    UNKNOWN_STATE = "unknown_state"  # another browser's, used before, or too old
    UNREACHABLE = "provider_unreachable"
    ADDRESS_REFUSED = "provider_address_refused"
    BAD_ANSWER = "bad_answer"  # of discovery, keys or token endpoint
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_NONCE = "wrong_nonce"
    WRONG_KEY = "wrong_key"
    WRONG_TIME = "wrong_time"
    WRONG_ALGORITHM = "wrong_algorithm"
    BAD_TOKEN = "bad_token"  # noqa: S105
    SECRET_LOST = "secret_lost"  # noqa: S105
    UNVERIFIED_EMAIL = "unverified_email"
    FOREIGN_DOMAIN = "foreign_domain"
    OTHER_SUBJECT = "other_subject"  # the account is bound to another one of this provider
    INACTIVE = "inactive_account"
    NO_ROLE = "no_role"
    NO_ROOM = "too_many_members"  # for the tenant's tier


_OF_THE_PERSON: Final = {
    Reason.CANCELLED: "Signing in was cancelled.",
    Reason.UNKNOWN_STATE: "This sign-in was used already, took too long, or began in another "
    "browser. Start again.",
    Reason.UNREACHABLE: "Your organisation's provider could not be reached. Try again later.",
    Reason.UNVERIFIED_EMAIL: "Your organisation's provider has not verified your email address.",
    Reason.FOREIGN_DOMAIN: "Your email address is not in a domain that this organisation has "
    "proven. Ask one of its owners.",
    Reason.NO_ROLE: "Your organisation's provider gives you no role here. Ask one of its owners.",
    Reason.NO_ROOM: "Your organisation has as many members as its tier allows. Ask one of its "
    "owners.",
}
_OTHERWISE: Final = (
    "Your organisation's provider gave an answer that cannot be accepted. Ask one of its owners; "
    "the audit log says why."
)


class SignOnRefused(Exception):
    """Raised with the reason; `sentence` is what the person reads."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def sentence(self) -> str:
        return _OF_THE_PERSON.get(self.reason, _OTHERWISE)
