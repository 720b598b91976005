"""manage.py remove_member Acme alice@acme.example"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from tenants.access.people import OPERATOR, remove
from tenants.management.look_up import tenant_named, user_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("email")
        parser.add_argument(
            "--revoke-keys", action="store_true", help="revoke the API keys that they made, too"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        tenant, user = tenant_named(options["tenant"]), user_named(options["email"])
        membership = tenant.memberships.filter(user=user).first()
        if membership is None:
            raise CommandError(f"{user.email} is not a member of {tenant.name}.")
        remove(membership, by=OPERATOR, revoke_keys=options["revoke_keys"])
        self.report(options, tenant=tenant.name, email=user.email)
