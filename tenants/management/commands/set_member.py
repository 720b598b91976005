"""manage.py set_member Acme alice@acme.example --role admin [--invite]"""

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.management.base import CommandParser

from tenants.access.invitations.inviting import invite
from tenants.access.people import OPERATOR, set_member
from tenants.management.look_up import tenant_named
from tenants.management.passwords import add_password_arguments, read_password
from tenants.management.reporting import ReportingCommand
from tenants.models import Tenant, User
from tenants.permissions import Role


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument(
            "email", help="e-mail address; the account is created if it does not exist"
        )
        parser.add_argument("--role", required=True, choices=[role.value for role in Role])
        parser.add_argument(
            "--invite",
            action="store_true",
            help="send an invitation instead: they join once they accept it",
        )
        add_password_arguments(parser, required=False)

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        if options["invite"]:
            self._invite(tenant, options)
        else:
            self._add(tenant, options)

    def _invite(self, tenant: Tenant, options: dict[str, Any]) -> None:
        sent = invite(tenant, email=options["email"], role=Role(options["role"]), by=None)
        self.report(
            options,
            invitation_id=str(sent.id),
            tenant=tenant.name,
            email=sent.email,
            role=sent.role,
            expires_at=sent.expires_at,
        )

    def _add(self, tenant: Tenant, options: dict[str, Any]) -> None:
        email = options["email"].strip().lower()
        user = User.objects.filter(email=email).first() or User(email=email)
        is_new = user._state.adding
        if is_new:
            user.set_unusable_password()
        if options["password_stdin"] or options["password_file"] is not None:
            password = read_password(options)
            validate_password(password, user)
            user.set_password(password)
        user.full_clean(exclude=["password"])
        user.save()
        membership, is_added = set_member(tenant, user, Role(options["role"]), by=OPERATOR)
        self.report(
            options,
            membership_id=str(membership.id),
            tenant=tenant.name,
            email=user.email,
            role=membership.role,
            is_new_member=is_added,
            is_new_account=is_new,
        )
