"""What of single sign-on leaves with a tenant, and what fsck asks of it."""

from typing import Final

from tenants.access.sign_on.check import sign_on_problems
from tenants.fsck import whole
from tenants.models import MailDomain, SignOnConfiguration, SignOnIdentity, Tenant
from tenants.offboarding.export import rows_of
from tenants.permissions import Permission
from tenants.rooms import Room


def erase(tenant: Tenant) -> None:
    """Forget provider, domains and subjects; the domains are free again."""
    for rows in (SignOnConfiguration.objects, MailDomain.objects, SignOnIdentity.objects):
        rows.filter(tenant=tenant).delete()


ROOM: Final = Room(
    exports={
        "sign_on": (rows_of(SignOnConfiguration), Permission.VIEW_PEOPLE),
        "mail_domain": (rows_of(MailDomain), Permission.VIEW_PEOPLE),
        "sign_on_identity": (rows_of(SignOnIdentity), Permission.VIEW_PEOPLE),
    },
    erasers=(erase,),
    checks={"single sign-on": whole(sign_on_problems)},
)
