"""The second factor beside a password: codes of an authenticator app, passkeys, or recovery codes.
Each code works once. Asked for at every door."""

from enum import StrEnum
from typing import Any, Final

from allauth.mfa import signals
from allauth.mfa.models import Authenticator
from django.http import HttpRequest

from tenants.access.sign_in import is_guessing_codes
from tenants.audit.log import record
from tenants.isolation.audit_actor import UNKNOWN_ACTOR, Actor, Verb, address_of, audit_actor
from tenants.models import User

KINDS: Final = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


def connect() -> None:
    """Record what people change about their second factor, and codes that were wrong."""
    signals.authenticator_added.connect(_added, dispatch_uid="audit")
    signals.authenticator_removed.connect(_removed, dispatch_uid="audit")
    signals.authenticator_reset.connect(_added, dispatch_uid="audit")
    signals.authentication_failed.connect(_failed, dispatch_uid="audit")


class CodeProblem(StrEnum):
    """Why a code of a second factor lets nobody in; doors tell it as their code."""

    MISSING = "second_factor_required"
    PASSKEY = "passkey_required"  # there is nothing else that gives codes, but recovery codes
    TOO_MANY = "too_many_attempts"
    WRONG = "wrong_second_factor"


def code_problem(request: HttpRequest, user: User, code: str) -> CodeProblem | None:
    """Return why the user, who gave the password, may not come in with this code ("" is none);
    None if they may, and then the code is used up. Who has no second factor needs no code."""
    if not has_second_factor(user):
        return None
    if not code:
        return CodeProblem.MISSING if has_app(user) else CodeProblem.PASSKEY
    if is_guessing_codes(request, str(user.pk)):
        return CodeProblem.TOO_MANY
    return None if use_code(request, user, code) else CodeProblem.WRONG


def has_second_factor(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type__in=KINDS).exists())


def has_app(user: User) -> bool:
    """Return whether the user has an authenticator app: who has passkeys alone has no code to give,
    but recovery codes."""
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists())


def use_code(request: HttpRequest, user: User, code: str) -> bool:
    """Return whether a code is right and was not used before, and use it up; record a wrong one."""
    given = "".join(code.split())
    of_codes = Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN)
    for authenticator in of_codes.filter(user=user).order_by("-type"):
        if given and authenticator.wrap().validate_code(given):
            authenticator.record_usage()
            return True
    note_failure(request, user)
    return False


def note_failure(request: HttpRequest, user: User) -> None:
    """Record that whoever gave the password gave no right second factor."""
    _record(Verb.SECOND_FACTOR_FAILED, user, UNKNOWN_ACTOR, request)


def note_failed_passkey(request: HttpRequest, user: User) -> None:
    """Record that somebody tried to sign in as the user with a passkey, and no password."""
    _record(Verb.SIGN_IN_FAILED, user, UNKNOWN_ACTOR, request, Authenticator.Type.WEBAUTHN)


def _added(*, request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    _record(Verb.SECOND_FACTOR_ADDED, user, user.as_actor(), request, authenticator.type)


def _removed(*, request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    _record(Verb.SECOND_FACTOR_REMOVED, user, user.as_actor(), request, authenticator.type)


def _failed(*, request: HttpRequest, user: User, **_: Any) -> None:
    note_failure(request, user)


def _record(
    verb: Verb, user: User, actor: Actor, request: HttpRequest, kind: str | None = None
) -> None:
    """`kind` is of authenticator: `totp`, `webauthn` (a passkey) or `recovery_codes`."""
    with audit_actor(actor, address_of(request)):
        record(verb, user, **({"kind": kind} if kind else {}))  # type: ignore[arg-type]
