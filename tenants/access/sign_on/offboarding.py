"""What of single sign-on leaves with a tenant."""

from tenants.models import MailDomain, SignOnConfiguration, SignOnIdentity, Tenant
from tenants.offboarding.closing import register_eraser
from tenants.offboarding.export import register_export, rows_of
from tenants.permissions import Permission


def register() -> None:
    register_eraser(erase)
    register_export("sign_on", rows_of(SignOnConfiguration), Permission.VIEW_PEOPLE)
    register_export("mail_domain", rows_of(MailDomain), Permission.VIEW_PEOPLE)
    register_export("sign_on_identity", rows_of(SignOnIdentity), Permission.VIEW_PEOPLE)


def erase(tenant: Tenant) -> None:
    """Forget provider, domains and subjects; the domains are free again."""
    for rows in (SignOnConfiguration.objects, MailDomain.objects, SignOnIdentity.objects):
        rows.filter(tenant=tenant).delete()
