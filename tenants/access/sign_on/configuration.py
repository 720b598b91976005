"""A tenant's provider, and what its people have to prove to enter. Call these inside the tenant's
scope."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError

from tenants.access.break_glass import break_glass_owners, no_way_in
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
    `ValidationError` that names every field that is wrong."""
    Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant.pk)
    configuration = configuration_of(tenant)
    secret = fields.pop("client_secret", "")
    is_elsewhere = configuration is None or any(
        fields.get(name, getattr(configuration, name)) != getattr(configuration, name)
        for name in ("issuer", "client_id")
    )
    configuration = configuration or SignOnConfiguration(tenant=tenant)
    for name, value in fields.items():
        setattr(configuration, name, value.strip() if isinstance(value, str) else value)
    if secret:
        configuration.client_secret = secret
    wrong: dict[str, list[ValidationError]] = {}
    _note(wrong, lambda: configuration.full_clean(exclude=["tenant"], validate_unique=False))
    if "roles" not in wrong:
        _note(wrong, lambda: check_roles(configuration.roles))
    if is_elsewhere:
        if not secret:
            needed = _wrong("client_secret", "Enter the secret of this client.", code="required")
            needed.update_error_dict(wrong)
        if "issuer" not in wrong:
            _note(wrong, lambda: _check_issuer(configuration.issuer))
        if "issuer" not in wrong and unreachable is not None:
            unreachable.update_error_dict(wrong)
    if wrong:
        raise ValidationError(wrong)
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
        if not break_glass_owners(tenant.pk):
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


def check_roles(roles: object) -> None:
    """Raises `ValidationError` that says which pair is wrong, at `roles`."""
    known = ", ".join(Role)
    if not isinstance(roles, dict) or len(roles) > MAX_ROLES:
        text = f"Map at most {MAX_ROLES} values of the claim, each to one of {known}."
        raise _wrong("roles", text, code="roles")
    for value, role in roles.items():
        if not isinstance(value, str) or not 0 < len(value) <= _MAX_VALUE_CHARACTERS:
            text = f"A value of the claim has 1 to {_MAX_VALUE_CHARACTERS} characters."
            raise _wrong("roles", text, code="roles")
        if not isinstance(role, str) or role not in set(Role):
            text = f"{value!r}: {str(role)[:50]!r} is no role; it is one of {known}."
            raise _wrong("roles", text, code="roles")


def _note(wrong: dict[str, list[ValidationError]], check: Callable[[], None]) -> None:
    """Put what a check finds beside what was found before."""
    try:
        check()
    except ValidationError as error:
        error.update_error_dict(wrong)


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
