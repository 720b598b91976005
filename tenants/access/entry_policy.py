"""What a session needs to enter a tenant, beside its person's membership, to do there what costs
everything, and to be an operator's. Keys are not asked."""

from typing import Final

from django.conf import settings

from tenants.access.second_factor import has_second_factor
from tenants.access.session_proofs import RECENT, AuthenticationMethods, SignOn
from tenants.access.sign_on.configuration import configuration_of
from tenants.errors import NotPermitted
from tenants.models import Tenant, User
from tenants.permissions import NEEDS_RECENT_PROOF, Permission, Role

OWN_SIGN_IN: Final = "own_sign_in_required"
SIGN_ON: Final = "sign_on_required"
SECOND_FACTOR: Final = "second_factor_required"
RECENT_PROOF: Final = "recent_sign_in_required"


class EntryRefused(NotPermitted):
    """The session lacks what the tenant asks for; its code says what."""

    def __init__(self, tenant: Tenant, message: str, *, code: str) -> None:
        super().__init__(message, code=code)
        self.tenant = tenant


def check_entry(tenant: Tenant, user: User, role: Role, proofs: AuthenticationMethods) -> None:
    """Check a member's session, inside the tenant's scope. An owner's password and second factor
    open a tenant that demands single sign-on, so that it can be entered while its provider is down.
    Raises `EntryRefused`."""
    sign_on = _sign_on(tenant, proofs)
    if not proofs.is_own and sign_on is None:
        raise EntryRefused(
            tenant,
            "This session was opened by single sign-on of another organisation, or has outlasted "
            "it. Sign out, and sign in with your password or this organisation's single sign-on.",
            code=OWN_SIGN_IN,
        )
    asks = tenant.demands_sign_on or tenant.demands_second_factor
    if not asks:
        return
    has_both = proofs.is_own and proofs.has_second_factor and has_second_factor(user)
    if tenant.demands_sign_on and sign_on is None and not (role is Role.OWNER and has_both):
        raise EntryRefused(
            tenant,
            f"This organisation asks for single sign-on: open /sso/{tenant.pk}/ in the browser "
            "of this session and sign in there.",
            code=SIGN_ON,
        )
    by_provider = sign_on is not None and sign_on.has_second_factor
    if tenant.demands_second_factor and not has_both and not by_provider:
        raise EntryRefused(
            tenant,
            "This organisation asks for two-step sign-in: set it up at /account/2fa/, or sign out "
            "and sign in with a code.",
            code=SECOND_FACTOR,
        )


def check_recent_proof(
    tenant: Tenant, permission: Permission, proofs: AuthenticationMethods
) -> None:
    """Check, inside the tenant's scope, before a change that takes this permission. Raises
    `EntryRefused`."""
    if permission in NEEDS_RECENT_PROOF and not proofs.are_recent(_sign_on(tenant, proofs)):
        raise EntryRefused(
            tenant,
            f"This takes a sign-in within the last {RECENT.seconds // 60} minutes: give your "
            "password, second factor or single sign-on again, and repeat it.",
            code=RECENT_PROOF,
        )


def is_operators(user: User, proofs: AuthenticationMethods) -> bool:
    """Return whether a session is an operator's who has signed in as such, with a second factor
    where operators need one: one that was open before they had it has proven none. A tenant's
    provider vouches for nobody here."""
    if not (user.is_active and user.is_staff and proofs.is_own):
        return False
    needs_more = settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR
    return not needs_more or (proofs.has_second_factor and has_second_factor(user))


def _sign_on(tenant: Tenant, proofs: AuthenticationMethods) -> SignOn | None:
    if tenant.pk not in proofs.sign_ons:
        return None
    configuration = configuration_of(tenant)
    return proofs.sign_on_to(tenant.pk, None if configuration is None else configuration.issuer)
