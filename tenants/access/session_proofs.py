"""What the person of a session has proven, and to whom: their own password, a second factor, or the
provider of a tenant. A provider's word opens that tenant, and nothing of the account beside it."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from allauth.account.signals import authentication_step_completed
from allauth.mfa.signals import authenticator_added
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from tenants.access.second_factor import has_second_factor
from tenants.models import User

SIGN_ON_LASTS: Final = timedelta(hours=12)
RECENT: Final = timedelta(minutes=10)
_KEY: Final = "proofs"


@dataclass(frozen=True, kw_only=True)
class SignOn:
    """A provider's word. `until` is in seconds since 1970."""

    issuer: str
    until: float
    has_second_factor: bool

    @property
    def at(self) -> float:
        return self.until - SIGN_ON_LASTS.total_seconds()


@dataclass(frozen=True, kw_only=True)
class AuthenticationMethods:
    """`is_own`: somebody signed in with what is their own, not by a provider's word alone; they
    gave it last at `own_at`, in seconds since 1970. `sign_ons` are by tenant."""

    is_own: bool
    own_at: float = 0.0
    has_second_factor: bool = False
    sign_ons: Mapping[uuid.UUID, SignOn] = field(default_factory=dict)

    def sign_on_to(self, tenant_id: uuid.UUID, issuer: str | None) -> SignOn | None:
        """Return the word of the tenant's present provider while it holds."""
        found = self.sign_ons.get(tenant_id)
        is_good = found is not None and found.issuer == issuer and time.time() < found.until
        return found if is_good else None

    def are_recent(self, sign_on: SignOn | None) -> bool:
        """Return whether somebody gave what is their own within `RECENT`, or came by this sign-on
        within it."""
        last = max(self.own_at if self.is_own else 0.0, 0.0 if sign_on is None else sign_on.at)
        return time.time() - last < RECENT.total_seconds()


_NOTHING: Final = AuthenticationMethods(is_own=False)


def connect() -> None:
    """Note second factors as people set them up, and what they give again."""
    authenticator_added.connect(_added, dispatch_uid="session proofs")
    authentication_step_completed.connect(_given, dispatch_uid="session proofs")


def proofs_of(session: SessionBase) -> AuthenticationMethods:
    stored = session.get(_KEY)
    if stored is None:
        return _NOTHING
    return AuthenticationMethods(
        is_own=stored["is_own"],
        own_at=stored["own_at"],
        has_second_factor=stored["has_second_factor"],
        sign_ons={
            uuid.UUID(tenant_id): SignOn(**told) for tenant_id, told in stored["sign_ons"].items()
        },
    )


def note_own_sign_in(request: HttpRequest, user: User) -> None:
    """Note that somebody signed in at a door, each of which asks for the second factor of whoever
    has one."""
    before = proofs_of(request.session)
    if not before.is_own:
        request.session.set_expiry(None)
    _store(
        request,
        replace(
            before,
            is_own=True,
            own_at=time.time(),
            has_second_factor=has_second_factor(user),
        ),
    )


def note_sign_on(
    request: HttpRequest,
    tenant_id: uuid.UUID,
    *,
    issuer: str,
    has_second_factor: bool,
    before: AuthenticationMethods | None,
) -> None:
    """Note a provider's word, beside what the same person had proven `before`. A session of nothing
    else ends with it."""
    until = datetime.now(UTC) + SIGN_ON_LASTS
    told = SignOn(issuer=issuer, until=until.timestamp(), has_second_factor=has_second_factor)
    before = before or _NOTHING
    _store(request, replace(before, sign_ons={**before.sign_ons, tenant_id: told}))
    if not before.is_own:
        request.session.set_expiry(until)


def _added(*, request: HttpRequest, **_: Any) -> None:
    """Note that somebody has just set a second factor up, and so proven it."""
    before = proofs_of(request.session)
    if before.is_own:
        _store(request, replace(before, has_second_factor=True))


def _given(*, request: HttpRequest, reauthenticated: bool = False, **_: Any) -> None:
    """Note that somebody who is signed in has given again what is their own."""
    before = proofs_of(request.session)
    if reauthenticated and before.is_own:
        _store(request, replace(before, own_at=time.time()))


def _store(request: HttpRequest, proofs: AuthenticationMethods) -> None:
    stored: dict[str, Any] = {
        "is_own": proofs.is_own,
        "own_at": proofs.own_at,
        "has_second_factor": proofs.has_second_factor,
        "sign_ons": {str(tenant): vars(told) for tenant, told in proofs.sign_ons.items()},
    }
    request.session[_KEY] = stored
