"""Making, changing, rotating and revoking API keys: the rules of their fields, and that nobody has
to do with a key that is wider than they are.

Every door comes through here: the admin, the commands, the API. That a caller may manage keys at
all is the door's to check.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from gpu_workers.protocol.policy import Scope
from tenants import key_format
from tenants.access.widths.budgets import is_bounded
from tenants.access.widths.rule import Principal, check_width
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.models import ApiKey, Cap, Project, check_cap
from tenants.models.api_key import parse_network
from tenants.policy.rows import unavailable_models

LONGEST_OVERLAP: Final = timedelta(days=30)

_Errors = dict[str, list[str] | list[ValidationError]]


@dataclass(frozen=True, kw_only=True)
class IssuedApiKey:
    """A new key's record and the key itself, which nobody can read again."""

    record: ApiKey
    key: str


def issue_api_key(
    project: Project,
    *,
    name: str = "",
    key: str | None = None,
    by: Principal = None,
    operator_id: uuid.UUID | None = None,
    **fields: object,
) -> IssuedApiKey:
    """Make a key of a project, or take in the `key` that was made before; `operator_id`: the
    account of the operator who makes it, if one does.

    A key that is made by a key inherits the bounds that are not named, and counts into its maker's
    hard quotas. Raises `ValidationError` that names each bad field, and each in which the key is
    wider than `by`; `MalformedApiKey` where `key` is none; `IntegrityError` where its id is taken;
    `CapReached` where the tier allows no more keys, or no more quotas that it would count into.
    """
    record = ApiKey(project=project, tenant_id=project.tenant_id)
    record.created_by_id = getattr(by, "user_id", operator_id)
    if isinstance(by, ApiKey) and is_bounded(by):
        record.budget_key = by.budget_key or by
    key = record.set_key(key_format.generate() if key is None else key)
    _set(record, {"name": name, "scopes": record.scopes, **_inherited(by), **fields})
    check_width(record, by)
    # Those of the account hold for all that count into it.
    copied = []
    if isinstance(by, ApiKey) and by.budget_key_id is not None:
        copied = list(by.quotas.filter(is_hard=True))
    with transaction.atomic():
        check_cap(record.tenant_id, Cap.API_KEYS)
        if copied:
            check_cap(record.tenant_id, Cap.QUOTAS, adding=len(copied))
        record.save(force_insert=True)
        for quota in copied:
            record.quotas.create(tenant_id=record.tenant_id, limit=quota.limit, value=quota.value)
    return IssuedApiKey(record=record, key=key)


def change_api_key(key: ApiKey, *, by: Principal = None, **fields: object) -> None:
    """Change name, scopes, expiry and allow-lists. Raises `ValidationError` as `issue_api_key`
    does, also where the key was wider than `by` before."""
    _check_not_playground(key)
    check_width(key, by)
    stored = ApiKey.objects.filter(pk=key.pk).values(*fields).get()
    _set(key, {name: value for name, value in fields.items() if value != stored[name]})
    check_width(key, by)
    key.save(update_fields=list(fields))


def rotate_api_key(key: ApiKey, *, overlap: timedelta, by: Principal = None) -> str:
    """Give a key a new secret under the same id; the one before works for `overlap` more. Return
    the new key, which nobody can read again. Raises `ValidationError` for a key that does not work,
    or is wider than `by`."""
    with transaction.atomic(), audited_as(Verb.ROTATED):
        # Of two at the same time the second rotates what the first made.
        key.refresh_from_db(from_queryset=ApiKey.objects.select_for_update(of=("self",)))
        _check_rotation(key, overlap)
        check_width(key, by)
        return key.replace_secret(overlap)


def revoke_api_key(key: ApiKey, *, by: Principal = None) -> datetime:
    """Refuse a key from now on; calling it again keeps the first time. Return that time. Raises
    `ValidationError` for a key that is wider than `by`, or of a project that is not its own."""
    try:
        check_width(key, by)
    except ValidationError as error:
        raise ValidationError(
            "This key may do what you may not: somebody who may has to revoke it.",
            code="wider_key",
        ) from error
    return key.revoke()


# The rules --------------------------------------------------------------------------------------


def checked_fields(tenant_id: uuid.UUID, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return new values of a key's fields in their one form. Raises `ValidationError` that names
    every bad one. What does not change is not for here: it was good when it was set."""
    checked = dict(fields)
    errors: _Errors = {}
    for name, check in _CHECKS.items():
        if name in fields:
            try:
                checked[name] = check(tenant_id, fields[name])
            except ValidationError as error:
                errors[name] = error.error_list
    _raise(errors)
    return checked


def _checked_scopes(_: uuid.UUID, scopes: Iterable[str] | None) -> list[str]:
    known = [scope.value for scope in Scope]
    wanted = list(dict.fromkeys(scopes or []))
    unknown = sorted(set(wanted) - set(known))
    if unknown or not wanted:
        found = ", ".join(map(repr, unknown)) or "none"
        raise ValidationError(
            f"A key has one or more of the scopes {', '.join(known)}; got {found}.",
            code="unknown_scope" if unknown else "no_scope",
        )
    return wanted


def _checked_networks(_: uuid.UUID, networks: Iterable[str] | None) -> list[str] | None:
    parsed = [str(parse_network(text)) for text in networks or []]
    return list(dict.fromkeys(parsed)) or None


def _checked_names(_: uuid.UUID, names: Iterable[str] | None) -> list[str] | None:
    stripped = [text.strip() for text in names or []]
    if "" in stripped:
        raise ValidationError("A name may not be empty.", code="empty_name")
    return list(dict.fromkeys(stripped)) or None


def _checked_models(tenant_id: uuid.UUID, names: Iterable[str] | None) -> list[str] | None:
    models = _checked_names(tenant_id, names)
    unavailable = unavailable_models(tenant_id, models) if models else []
    if unavailable:
        raise ValidationError(
            "There is no model %(models)s for this tenant.",
            code="unknown_model",
            params={"models": ", ".join(map(repr, unavailable))},
        )
    return models


def _checked_expiry(_: uuid.UUID, expires_at: datetime | None) -> datetime | None:
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError("The expiry must be in the future.", code="in_the_past")
    return expires_at


_CHECKS: Final[dict[str, Callable[[uuid.UUID, Any], Any]]] = {
    "scopes": _checked_scopes,
    "allowed_networks": _checked_networks,
    "allowed_models": _checked_models,
    "allowed_adapters": _checked_names,
    "expires_at": _checked_expiry,
}


def _set(key: ApiKey, fields: Mapping[str, object]) -> None:
    """Set the fields on the record. Raises `ValidationError` that names every bad one, for the
    reason of a rule or of the column."""
    errors: dict[str, list[ValidationError]] = {}
    try:
        fields = checked_fields(key.tenant_id, fields)
    except ValidationError as error:
        error.update_error_dict(errors)
    for name, value in fields.items():
        setattr(key, name, value)
    checked_above = {"project", "tenant", "scopes", "allowed_networks", *errors}
    try:
        key.full_clean(exclude=checked_above, validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        error.update_error_dict(errors)
    if errors:
        raise ValidationError(errors)


def _check_not_playground(key: ApiKey) -> None:
    if key.is_playground:
        raise ValidationError(
            "This key stands for a playground: it has no secret and cannot be changed. Revoke it, "
            "or set limits for it.",
            code="playground",
        )


def _check_rotation(key: ApiKey, overlap: timedelta) -> None:
    _check_not_playground(key)
    if key.is_revoked:
        raise ValidationError(
            "This API key is revoked; make a new one instead of rotating it.", code="revoked"
        )
    if key.expires_at is not None and key.expires_at <= timezone.now():
        raise ValidationError(
            "This API key has expired; make a new one instead of rotating it.", code="expired"
        )
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        outside = ValidationError(
            f"The overlap is from 0 to {LONGEST_OVERLAP.days} days, got {overlap}.",
            code="out_of_range",
        )
        raise ValidationError({"overlap": outside})


def _inherited(by: Principal) -> dict[str, object]:
    """Return the bounds that a new key takes over where its maker names none."""
    if not isinstance(by, ApiKey):
        return {}
    return {
        "expires_at": by.expires_at,
        "allowed_networks": by.allowed_networks,
        "allowed_models": by.allowed_models,
        "allowed_adapters": by.allowed_adapters,
    }


def _raise(errors: _Errors) -> None:
    if errors:
        raise ValidationError(errors)
