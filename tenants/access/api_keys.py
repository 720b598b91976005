"""Making, changing and rotating API keys: the rules of their fields, and that no key is ever wider
than whoever made it.

Every door comes through here: the admin, the commands, the API. That a caller may manage keys at
all is the door's to check.
"""

import ipaddress
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
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.models import ApiKey, Membership, Project
from tenants.models.api_key import Network, parse_network
from tenants.permissions import ROLE_PERMISSIONS, Role, grantable_scopes
from tenants.policy.rows import unavailable_models

LONGEST_OVERLAP: Final = timedelta(days=30)

# Who makes or changes a key: another key, a member, or (None) an operator, who is above the rules.
Principal = ApiKey | Membership | None

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
    **fields: object,
) -> IssuedApiKey:
    """Make a key of a project, or take in the `key` that was made before.

    A key that is made by a key inherits the bounds that are not named, and has quotas as hard as
    its maker. Raises `ValidationError` that names each bad field, and each in which the key is
    wider than `by`; `MalformedApiKey` where `key` is none; `IntegrityError` where its id is taken.
    """
    record = ApiKey(project=project, tenant_id=project.tenant_id)
    record.created_by_id = getattr(by, "user_id", None)
    key = record.set_key(key_format.generate() if key is None else key)
    _set(record, {"name": name, "scopes": record.scopes, **_inherited(by), **fields})
    _check_width(record, by)
    with transaction.atomic():
        record.save(force_insert=True)
        if isinstance(by, ApiKey):
            for quota in by.quotas.filter(is_hard=True):
                record.quotas.create(
                    tenant_id=record.tenant_id, limit=quota.limit, value=quota.value
                )
    return IssuedApiKey(record=record, key=key)


def change_api_key(key: ApiKey, *, by: Principal = None, **fields: object) -> None:
    """Change name, scopes, expiry and allow-lists. Raises `ValidationError` as `issue_api_key`
    does, also where the key was wider than `by` before."""
    _check_width(key, by)
    stored = ApiKey.objects.filter(pk=key.pk).values(*fields).get()
    _set(key, {name: value for name, value in fields.items() if value != stored[name]})
    _check_width(key, by)
    key.save(update_fields=list(fields))


def rotate_api_key(key: ApiKey, *, overlap: timedelta, by: Principal = None) -> str:
    """Give a key a new secret under the same id; the one before works for `overlap` more. Return
    the new key, which nobody can read again. Raises `ValidationError` for a key that does not work,
    or is wider than `by`."""
    with transaction.atomic(), audited_as(Verb.ROTATED):
        # Of two at the same time the second rotates what the first made.
        key.refresh_from_db(from_queryset=ApiKey.objects.select_for_update(of=("self",)))
        _check_rotation(key, overlap)
        _check_width(key, by)
        return key.replace_secret(overlap)


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


def _check_rotation(key: ApiKey, overlap: timedelta) -> None:
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


def _check_width(key: ApiKey, by: Principal) -> None:
    """Raise `ValidationError` naming each field in which the key is wider than whoever makes,
    changes or rotates it: with its secret they could do what they may not."""
    if isinstance(by, ApiKey):
        _raise(_wider_than_key(key, by))
    elif isinstance(by, Membership):
        _raise(_wider_than_member(key, by))


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


def _wider_than_key(key: ApiKey, by: ApiKey) -> _Errors:
    errors: _Errors = {}
    if key.tenant_id != by.tenant_id:
        errors["project"] = ["It is of another tenant."]
    elif Scope.ADMIN not in by.scopes and key.project_id != by.project_id:
        errors["project"] = [
            "A key without the scope 'admin' manages keys of its own project only."
        ]
    if Scope.ADMIN not in by.scopes:
        _bound(errors, "scopes", set(key.scopes) - set(by.scopes), "has the scope {}")
    if by.expires_at is not None and (key.expires_at is None or key.expires_at > by.expires_at):
        errors["expires_at"] = [
            f"The key that makes it expires at {by.expires_at:%Y-%m-%d %H:%M:%S} UTC; "
            "it may not last longer."
        ]
    for field, what in (
        ("allowed_models", "may name the model {}"),
        ("allowed_adapters", "may name the adapter {}"),
    ):
        ours, theirs = getattr(key, field), getattr(by, field)
        if theirs is not None:
            _bound(errors, field, ["any"] if ours is None else set(ours) - set(theirs), what)
    if by.allowed_networks is not None:
        inside = _is_inside(by.allowed_networks)
        outside = (
            ["anywhere"]
            if key.allowed_networks is None
            else [text for text in key.allowed_networks if not inside(text)]
        )
        _bound(errors, "allowed_networks", outside, "may be used from {}")
    return errors


def _wider_than_member(key: ApiKey, by: Membership) -> _Errors:
    if key.tenant_id != by.tenant_id:
        return {"project": ["It is of another tenant."]}
    errors: _Errors = {}
    may = grantable_scopes(ROLE_PERMISSIONS[Role(by.role)])
    wider = [scope for scope in key.scopes if Scope(scope) not in may]
    if wider:
        errors["scopes"] = [
            f"The role {by.role} may not give a key the scope {', '.join(map(repr, wider))}."
        ]
    return errors


def _bound(errors: _Errors, field: str, beyond: Iterable[str], what: str) -> None:
    beyond = sorted(beyond)
    if beyond:
        words = what.format(", ".join(map(repr, beyond)))
        errors[field] = [f"It {words}, and the key that makes it may not; name less."]


def _is_inside(networks: list[str]) -> Callable[[str], bool]:
    blocks = [parse_network(network) for network in networks]

    def inside(text: str) -> bool:
        network = parse_network(text)
        return any(_subnet(network, block) for block in blocks)

    return inside


def _subnet(network: Network, block: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(block, ipaddress.IPv4Network) and network.subnet_of(block)
    return isinstance(block, ipaddress.IPv6Network) and network.subnet_of(block)


def _raise(errors: _Errors) -> None:
    if errors:
        raise ValidationError(errors)
