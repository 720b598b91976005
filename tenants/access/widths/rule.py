"""The rule that nobody makes, changes, rotates or revokes a key that is wider than they are: with
its secret they could do what they may not, and what it stops is not theirs to stop.

`WIDTHS` is the whole of it for keys: a key is wider than another if it is so in one field.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Final

from django.core.exceptions import ValidationError

from gpu_workers.protocol.policy import Scope
from tenants.access.widths.budgets import counts_with, is_bounded, own_bounds
from tenants.models import ApiKey, Membership
from tenants.models.api_key import Network, parse_network
from tenants.permissions import ROLE_PERMISSIONS, Role, grantable_scopes

# Who makes, changes or ends a key: another key, a member, or (None) an operator, who is above the
# rules.
Principal = ApiKey | Membership | None


def check_width(key: ApiKey, by: Principal) -> None:
    """Raise `ValidationError` naming each field in which the key is wider than `by`."""
    errors: dict[str, list[str]] = {}
    if isinstance(by, ApiKey):
        found = {field: wider(key, by) for field, wider in WIDTHS}
        errors = {field: [problem] for field, problem in found.items() if problem}
    elif isinstance(by, Membership):
        errors = _wider_than_member(key, by)
    if errors:
        raise ValidationError(errors)


def _project(key: ApiKey, by: ApiKey) -> str:
    if key.tenant_id != by.tenant_id:
        return "It is of another tenant."
    if Scope.ADMIN not in by.scopes and key.project_id != by.project_id:
        return "A key without the scope 'admin' manages keys of its own project only."
    return ""


def _scopes(key: ApiKey, by: ApiKey) -> str:
    if Scope.ADMIN in by.scopes:
        return ""
    return _beyond("has the scope {}", set(key.scopes) - set(by.scopes))


def _expiry(key: ApiKey, by: ApiKey) -> str:
    if by.expires_at is None or (key.expires_at is not None and key.expires_at <= by.expires_at):
        return ""
    return (
        f"The key that makes it expires at {by.expires_at:%Y-%m-%d %H:%M:%S} UTC; "
        "it may not last longer."
    )


def _models(key: ApiKey, by: ApiKey) -> str:
    return _beyond("may name the model {}", _more(key.allowed_models, by.allowed_models))


def _adapters(key: ApiKey, by: ApiKey) -> str:
    return _beyond("may name the adapter {}", _more(key.allowed_adapters, by.allowed_adapters))


def _networks(key: ApiKey, by: ApiKey) -> str:
    if by.allowed_networks is None:
        return ""
    inside = _is_inside(by.allowed_networks)
    outside = (
        ["anywhere"]
        if key.allowed_networks is None
        else [text for text in key.allowed_networks if not inside(text)]
    )
    return _beyond("may be used from {}", outside)


def _quotas(key: ApiKey, by: ApiKey) -> str:
    if key.pk == by.pk or not is_bounded(by):
        return ""
    if not counts_with(key, by):
        return "It does not count into the quotas of the key that asks."
    if key._state.adding:
        return ""  # it takes over the quotas of its maker
    has, bounds = own_bounds(key), own_bounds(by)
    wider = [limit for limit, most in bounds.items() if has.get(limit, most + 1) > most]
    return _beyond("has no quota as low of {}", wider)


WIDTHS: Final[tuple[tuple[str, Callable[[ApiKey, ApiKey], str]], ...]] = (
    ("project", _project),
    ("scopes", _scopes),
    ("expires_at", _expiry),
    ("allowed_models", _models),
    ("allowed_adapters", _adapters),
    ("allowed_networks", _networks),
    ("quotas", _quotas),
)


def _wider_than_member(key: ApiKey, by: Membership) -> dict[str, list[str]]:
    if key.tenant_id != by.tenant_id:
        return {"project": ["It is of another tenant."]}
    may = grantable_scopes(ROLE_PERMISSIONS[Role(by.role)])
    wider = [scope for scope in key.scopes if Scope(scope) not in may]
    if not wider:
        return {}
    named = ", ".join(map(repr, wider))
    return {"scopes": [f"The role {by.role} may not give a key the scope {named}."]}


def _more(ours: list[str] | None, bound: list[str] | None) -> Iterable[str]:
    if bound is None:
        return ()
    return ["any"] if ours is None else set(ours) - set(bound)


def _beyond(what: str, beyond: Iterable[str]) -> str:
    words = ", ".join(map(repr, sorted(beyond)))
    return words and f"It {what.format(words)}, and the key that makes it may not; name less."


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
