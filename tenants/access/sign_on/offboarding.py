"""What of single sign-on leaves with a tenant."""

from tenants.models import MailDomain, SignOnConfiguration, SignOnIdentity, Tenant
from tenants.offboarding.closing import register_eraser
from tenants.offboarding.export import register_export


def register() -> None:
    register_eraser(erase)
    register_export("sign_on", lambda tenant: SignOnConfiguration.objects.filter(tenant=tenant))
    register_export("mail_domain", lambda tenant: MailDomain.objects.filter(tenant=tenant))
    register_export("sign_on_identity", lambda tenant: SignOnIdentity.objects.filter(tenant=tenant))


def erase(tenant: Tenant) -> None:
    """Forget provider, domains and subjects; the domains are free again."""
    for rows in (SignOnConfiguration.objects, MailDomain.objects, SignOnIdentity.objects):
        rows.filter(tenant=tenant).delete()
