"""Signing in and out, for the audit log and the list of one's sessions. Django says so by its
signals, whichever door was used."""

from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import transaction
from django.http import HttpRequest

from tenants.access.session_proofs import note_own_sign_in
from tenants.access.sessions import forget_session, note_session
from tenants.audit.log import record, seal_now
from tenants.isolation.audit_actor import UNKNOWN_ACTOR, Actor, Verb, address_of, audit_actor
from tenants.models import User


def connect() -> None:
    user_logged_in.connect(_signed_in, dispatch_uid="audit")
    user_logged_out.connect(_signed_out, dispatch_uid="audit")
    user_login_failed.connect(_failed, dispatch_uid="audit")


def _signed_in(*, request: HttpRequest | None, user: User, **_: Any) -> None:
    _record(Verb.SIGNED_IN, user, user.as_actor(), request)
    if request is not None:
        note_own_sign_in(request, user)
        note_session(request, user)


def _signed_out(*, request: HttpRequest | None, user: User | None, **_: Any) -> None:
    if user is not None:
        _record(Verb.SIGNED_OUT, user, user.as_actor(), request)
        if request is not None:
            forget_session(request)


def _failed(*, request: HttpRequest | None = None, credentials: dict[str, Any], **_: Any) -> None:
    """Record a failed sign-in of a known account only: what else people type may be a password. The
    same is done for an unknown one and taken back, so that the time tells nobody which it was."""
    email = str(credentials.get("username") or credentials.get("email") or "").strip().lower()
    user = User.objects.filter(email=email).first()
    with transaction.atomic():
        _record(Verb.SIGN_IN_FAILED, user, UNKNOWN_ACTOR, request)
        seal_now()
        if user is None:
            transaction.set_rollback(True)


def _record(verb: Verb, user: User | None, actor: Actor, request: HttpRequest | None) -> None:
    with audit_actor(actor, None if request is None else address_of(request)):
        record(verb, user)
