"""A tenant's provider, and what its people have to prove to enter. Call these inside the tenant's
scope."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError

from tenants.access.ways_in import no_way_in, ways_in
from tenants.errors import Conflict
from tenants.isolation.scoping import tenant_scope
from tenants.models import SignOnConfiguration, Tenant
from tenants.permissions import Role
from tenants.webhooks import addresses

MAX_ROLES: Final = 100
MAX_SECRET_CHARACTERS: Final = 1000
_MAX_VALUE_CHARACTERS: Final = 200
# The most powerful first: whoever has two of them has the first.
_BY_POWER: Final = (Role.OWNER, Role.ADMIN, Role.DEVELOPER, Role.BILLING, Role.VIEWER)


def configuration_of(tenant: Tenant) -> SignOnConfiguration | None:
    return SignOnConfiguration.objects.filter(pk=tenant.pk).first()


def provider_of(tenant_id: uuid.UUID) -> SignOnConfiguration | None:
    """Return the provider of a tenant that is not closed, with its tenant. Needs no scope."""
    with tenant_scope(tenant_id):
        found = SignOnConfiguration.objects.select_related("tenant")
        return found.filter(pk=tenant_id, tenant__closed_at=None).first()


def configure(
    tenant: Tenant, *, unreachable: ValidationError | None = None, **fields: Any
) -> SignOnConfiguration:
    """Set those of `issuer`, `client_id`, `client_secret`, `role_claim`, `roles` and `default_role`
    that are given; the first three are needed at first. Another issuer or client needs its secret,
    too, so that nobody has a secret sent to a server of their own. `unreachable` is what
    `unreachable_issuer` said of another issuer before the transaction began. Raises
    `ValidationError` that names the field."""
    Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant.pk)
    configuration = configuration_of(tenant)
    secret = fields.pop("client_secret", "")
    is_elsewhere = configuration is None or any(
        fields.get(name, getattr(configuration, name)) != getattr(configuration, name)
        for name in ("issuer", "client_id")
    )
    configuration = configuration or SignOnConfiguration(tenant=tenant)
    if is_elsewhere and not secret:
        raise _wrong("client_secret", "Enter the secret of this client.", code="required")
    for name, value in fields.items():
        setattr(configuration, name, value.strip() if isinstance(value, str) else value)
    if secret:
        configuration.client_secret = secret
    _check_roles(configuration.roles)
    configuration.full_clean(exclude=["tenant"], validate_unique=False)
    if is_elsewhere:
        _check_issuer(configuration.issuer)
        if unreachable is not None:
            raise unreachable
    configuration.save()
    return configuration


def unreachable_issuer(tenant_id: uuid.UUID, issuer: str) -> ValidationError | None:
    """Ask the DNS where an issuer of the tenant leads, and return what speaks against it. Takes
    seconds where no answer comes: call it while no transaction is open."""
    try:
        addresses.check_reachable(issuer.strip(), owner=str(tenant_id))
    except addresses.Refused as error:
        return _refused(error)
    return None


def remove_configuration(tenant: Tenant) -> None:
    """Forget the provider; who is bound to which subject stays known, for its return. Raises
    `Conflict` while the tenant demands single sign-on."""
    tenant = Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant.pk)
    if tenant.demands_sign_on:
        raise Conflict(
            "This organisation asks its people for single sign-on; stop asking for it first.",
            code="sign_on_demanded",
        )
    SignOnConfiguration.objects.filter(pk=tenant.pk).delete()


def demand(
    tenant: Tenant, *, sign_on: bool | None = None, second_factor: bool | None = None
) -> Tenant:
    """Set what a session has to prove to enter; None leaves it. Raises `Conflict` where single
    sign-on is asked for without a provider, or without an owner who gets in beside it."""
    stored = Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant.pk)
    if sign_on and not stored.demands_sign_on:
        if configuration_of(tenant) is None:
            raise Conflict(
                "Set up the provider first, and sign on with it once.",
                code="no_provider",
                param="demands_sign_on",
            )
        if not ways_in(tenant.pk):
            raise no_way_in(param="demands_sign_on")
    if sign_on is not None:
        tenant.demands_sign_on = sign_on
    if second_factor is not None:
        tenant.demands_second_factor = second_factor
    tenant.save(update_fields=["demands_sign_on", "demands_second_factor"])
    return tenant


def role_for(configuration: SignOnConfiguration, claims: Mapping[str, Any]) -> Role | None:
    """Return the most powerful role that the claims give, or else the default one; None without
    either."""
    told = claims.get(configuration.role_claim) if configuration.role_claim else None
    values = told if isinstance(told, list) else [told]
    given = {configuration.roles.get(value) for value in values if isinstance(value, str)}
    found = next((role for role in _BY_POWER if role.value in given), None)
    if found is None and configuration.default_role:
        return Role(configuration.default_role)
    return found


def _check_roles(roles: object) -> None:
    is_mapping = isinstance(roles, dict) and len(roles) <= MAX_ROLES
    if not is_mapping or not all(map(_is_pair, roles.items())):  # type: ignore[attr-defined]
        known = ", ".join(Role)
        raise _wrong("roles", f"Map at most {MAX_ROLES} values to one of {known}.", code="roles")


def _is_pair(pair: tuple[object, object]) -> bool:
    value, role = pair
    is_value = isinstance(value, str) and 0 < len(value) <= _MAX_VALUE_CHARACTERS
    return is_value and isinstance(role, str) and role in set(Role)


def _check_issuer(issuer: str) -> None:
    if "?" in issuer or "#" in issuer:
        raise _wrong("issuer", "An issuer is an address without ? and #.", code="issuer")
    try:
        addresses.check_text(issuer)
    except addresses.Refused as error:
        raise _refused(error) from None


def _refused(error: addresses.Refused) -> ValidationError:
    match error:
        case addresses.AddressRefused():
            text = (
                "This host lies in a network that nothing is sent to; providers are reached on the "
                "public internet only."
            )
        case addresses.Unresolvable(code="no_address"):
            text = "This host has no address in the DNS."
        case addresses.Unresolvable():
            text = str(error)
        case _:
            text = "An issuer is an address like https://login.acme.example."
    return _wrong("issuer", text, code=error.code)


def _wrong(field: str, message: str, *, code: str) -> ValidationError:
    return ValidationError({field: ValidationError(message, code=code)})
