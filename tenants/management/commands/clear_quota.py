"""manage.py clear_quota Acme tokens_per_day --project web"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from gpu_workers.protocol.policy import QUOTA_NAMES
from tenants.access.quotas import delete_quota
from tenants.management.look_up import place_named, tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.models import Quota


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("limit", choices=[name.value for name in QUOTA_NAMES])
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--project")
        place.add_argument("--api-key")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        place = place_named(tenant, options["project"], options["api_key"])
        quota = Quota.objects.filter(
            tenant=tenant, limit=options["limit"], is_own=False, **place
        ).first()
        if quota is None:
            raise CommandError(f"No quota for {options['limit']} there.")
        quota_id, scope = str(quota.id), quota.scope
        delete_quota(quota)
        self.report(
            options, quota_id=quota_id, tenant=tenant.name, scope=scope, limit=options["limit"]
        )
