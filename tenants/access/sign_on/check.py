"""What fsck looks at: providers that cannot be used, tenants that might shut their people out."""

from collections.abc import Iterator

from tenants.access.break_glass import break_glass_owners
from tenants.encryption import SecretLost
from tenants.models import SignOnConfiguration, Tenant


def sign_on_problems() -> Iterator[str]:
    """Yield a sentence for each; inside an operator's scope."""
    providers = {each.pk: each for each in SignOnConfiguration.objects.all()}
    for tenant_id, provider in providers.items():
        try:
            _ = provider.client_secret
        except SecretLost as problem:
            yield f"Single sign-on of tenant {tenant_id}: {problem}"
    for tenant in Tenant.objects.filter(demands_sign_on=True, closed_at=None):
        if tenant.pk not in providers:
            yield f"Tenant {tenant.pk} demands single sign-on and has no provider."
        if not break_glass_owners(tenant.pk):
            yield (
                f"Tenant {tenant.pk} demands single sign-on, and no owner has a password and "
                "two-step sign-in: nobody gets in while its provider is down."
            )
