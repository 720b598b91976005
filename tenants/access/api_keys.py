"""What an API key may be: the rules of its fields, and that it is never wider than its creator.

Every door that makes, changes or rotates a key comes through here: the admin, the commands, the
API. That a caller may manage keys at all is the door's to check.
"""

import ipaddress
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Final

from django.core.exceptions import ValidationError
from django.utils import timezone

from gpu_workers.protocol.policy import Scope
from tenants.models import ApiKey, Membership
from tenants.models.api_key import Network, parse_network
from tenants.permissions import ROLE_PERMISSIONS, SCOPE_PERMISSIONS, Role
from tenants.policy.rows import unseen_models

LONGEST_OVERLAP: Final = timedelta(days=30)

# Who makes or changes a key: another key, a member, or an operator, who is above the rules.
By = ApiKey | Membership | None

_Errors = dict[str, list[str]]


def check_fields(key: ApiKey, changed: Collection[str]) -> None:
    """Puts the fields into their one form; raises `ValidationError` that names every bad one.
    What is not among `changed` was good when it was set."""
    errors: _Errors = {}
    if "scopes" in changed:
        key.scopes = list(dict.fromkeys(key.scopes or []))
        unknown = sorted(set(key.scopes) - {scope.value for scope in Scope})
        if unknown or not key.scopes:
            known = ", ".join(Scope)
            found = ", ".join(map(repr, unknown)) or "none"
            errors["scopes"] = [f"A key has one or more of the scopes {known}; got {found}."]
    if "allowed_networks" in changed:
        try:
            networks = [str(parse_network(text)) for text in key.allowed_networks or []]
            key.allowed_networks = list(dict.fromkeys(networks)) or None
        except ValidationError as error:
            errors["allowed_networks"] = error.messages
    for name in ("allowed_models", "allowed_adapters"):
        if name in changed:
            names = [text.strip() for text in getattr(key, name) or []]
            setattr(key, name, list(dict.fromkeys(names)) or None)
            if "" in names:
                errors[name] = ["A name may not be empty."]
    if "allowed_models" in changed and key.allowed_models and "allowed_models" not in errors:
        unseen = unseen_models(key.tenant_id, key.allowed_models)
        if unseen:
            errors["allowed_models"] = [
                f"There is no model {', '.join(map(repr, unseen))} for this tenant."
            ]
    if "expires_at" in changed and key.expires_at is not None and key.expires_at <= timezone.now():
        errors["expires_at"] = ["The expiry must be in the future."]
    if "project" in changed and key.project.tenant_id != key.tenant_id:
        errors["project"] = ["The project is not of the key's tenant."]
    _raise(errors)


def check_width(key: ApiKey, by: By) -> None:
    """Raises `ValidationError`, naming each field in which the key is wider than whoever makes,
    changes or rotates it: with its secret they could do what they may not."""
    if isinstance(by, ApiKey):
        _raise(_wider_than_key(key, by))
    elif isinstance(by, Membership):
        _raise(_wider_than_member(key, by))


def check_rotation(key: ApiKey, overlap: timedelta) -> None:
    if key.is_revoked:
        raise ValidationError("This API key is revoked; make a new one instead of rotating it.")
    if key.expires_at is not None and key.expires_at <= timezone.now():
        raise ValidationError("This API key has expired; make a new one instead of rotating it.")
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise ValidationError(
            {"overlap": f"The overlap is from 0 to {LONGEST_OVERLAP.days} days, got {overlap}."}
        )


def inherited(by: By) -> dict[str, object]:
    """The bounds that a new key takes over where its maker names none."""
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
    may = ROLE_PERMISSIONS[Role(by.role)]
    wider = [scope for scope in key.scopes if not SCOPE_PERMISSIONS[Scope(scope)] <= may]
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
