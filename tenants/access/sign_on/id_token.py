"""An id token, checked as OpenID Connect Core 1.0, section 3.1.3.7 says, with signatures by public
keys alone, whichever way the token came."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from tenants.access.sign_on.refusals import Reason, SignOnRefused

# Where a secret signs, whoever holds it signs people in; `none` is nobody's signature.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
# By how much clocks may differ.
LEEWAY_SECONDS: Final = 60
MAX_SUBJECT_CHARACTERS: Final = 255
_MAX_KEYS: Final = 100
# RFC 8176: what a provider says of how somebody signed in.
_SOMETHING_HELD: Final = frozenset({"otp", "hwk", "swk", "sms", "sc"})
_REASONS: Final[tuple[tuple[type[Exception], Reason], ...]] = (
    (jwt.InvalidIssuerError, Reason.WRONG_ISSUER),
    (jwt.InvalidAudienceError, Reason.WRONG_AUDIENCE),
    (jwt.InvalidAlgorithmError, Reason.WRONG_ALGORITHM),
    (jwt.ExpiredSignatureError, Reason.WRONG_TIME),
    (jwt.ImmatureSignatureError, Reason.WRONG_TIME),
    (jwt.InvalidIssuedAtError, Reason.WRONG_TIME),
    (jwt.InvalidSignatureError, Reason.WRONG_KEY),
    (jwt.InvalidKeyError, Reason.WRONG_KEY),
)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a provider says of somebody, once it is known to be the provider's. `others` are all
    claims, of which one may name roles."""

    issuer: str
    subject: str
    email: str
    is_email_verified: bool
    name: str
    has_second_factor: bool
    others: Mapping[str, Any]


def verified_claims(token: str, *, keys: Mapping[str, Any], issuer: str, client_id: str) -> Claims:
    """Return what the token says. `keys` is the provider's JSON Web Key Set; the nonce is compared
    by `check_nonce`. Raises `SignOnRefused`."""
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise SignOnRefused(Reason.WRONG_ALGORITHM)
        told = jwt.decode(
            token,
            _key(keys, header),
            algorithms=[header["alg"]],
            audience=client_id,
            issuer=issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat", "nonce"]},
        )
    except jwt.PyJWTError as error:
        found = (reason for kind, reason in _REASONS if isinstance(error, kind))
        raise SignOnRefused(next(found, Reason.BAD_TOKEN)) from None
    except (TypeError, ValueError, AttributeError):
        # Types that the libraries did not expect.
        raise SignOnRefused(Reason.BAD_TOKEN) from None
    _check_authorized_party(told, client_id)
    return Claims(
        issuer=issuer,
        subject=_subject(told),
        email=_text(told.get("email")).strip().lower(),
        is_email_verified=told.get("email_verified") is True,
        name=_text(told.get("name")).strip()[:200],
        has_second_factor=_has_second_factor(told.get("amr")),
        others=told,
    )


def check_nonce(claims: Claims, nonce: str) -> None:
    """Check that the token answers the question that was asked. Raises `SignOnRefused`."""
    told = claims.others["nonce"]
    is_same = isinstance(told, str) and hmac.compare_digest(told.encode(), nonce.encode())
    if not nonce or not is_same:
        raise SignOnRefused(Reason.WRONG_NONCE)


def _key(keys: Mapping[str, Any], header: Mapping[str, Any]) -> jwt.PyJWK:
    """Return the key that the header names, or the only one that fits."""
    listed = keys.get("keys")
    if not isinstance(listed, list) or len(listed) > _MAX_KEYS:
        raise SignOnRefused(Reason.BAD_ANSWER)
    algorithm, kid = header["alg"], header.get("kid")
    fitting = [
        key
        for key in listed
        if isinstance(key, dict)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and key.get("kty") in ("RSA", "EC", "OKP")
        and (kid is None or key.get("kid") == kid)
    ]
    if len(fitting) != 1:
        raise SignOnRefused(Reason.WRONG_KEY)
    try:
        return jwt.PyJWK(fitting[0], algorithm=algorithm)
    except (jwt.PyJWTError, KeyError, TypeError, ValueError):
        raise SignOnRefused(Reason.WRONG_KEY) from None


def _check_authorized_party(told: Mapping[str, Any], client_id: str) -> None:
    audience = told["aud"]
    is_for_several = isinstance(audience, list) and len(audience) > 1
    if told.get("azp", None if is_for_several else client_id) != client_id:
        raise SignOnRefused(Reason.WRONG_AUDIENCE)


def _subject(told: Mapping[str, Any]) -> str:
    subject = told["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS:
        raise SignOnRefused(Reason.BAD_TOKEN)
    if not subject.isprintable():
        raise SignOnRefused(Reason.BAD_TOKEN)
    return subject


def _text(value: object) -> str:
    """Return a claim that is text and can be shown, empty for any other."""
    return value if isinstance(value, str) and value.isprintable() else ""


def _has_second_factor(methods: object) -> bool:
    if not isinstance(methods, list):
        return False
    named = {method for method in methods if isinstance(method, str)}
    return "mfa" in named or (len(named) > 1 and not named.isdisjoint(_SOMETHING_HELD))
