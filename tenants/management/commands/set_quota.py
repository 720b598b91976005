"""manage.py set_quota Acme tokens_per_day 1000000 --project web"""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from gpu_workers.protocol.policy import QUOTA_NAMES, LimitName
from tenants.access.quotas import save_quota
from tenants.management.arguments import dollar_amount
from tenants.management.look_up import place_named, tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.models import Quota
from tenants.models.quota import IN_NANOS


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("limit", choices=[name.value for name in QUOTA_NAMES])
        parser.add_argument("value")
        parser.add_argument(
            "--soft", action="store_true", help="soft limit: alert, but do not refuse"
        )
        parser.add_argument(
            "--alert-at",
            type=int,
            action="append",
            metavar="PERCENT",
            help="alert the tenant at this percentage; may be repeated (default: 50, 80 and 100)",
        )
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--project")
        place.add_argument("--api-key")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        place = place_named(tenant, options["project"], options["api_key"])
        limit = LimitName(options["limit"])
        value = _value_of(limit, options["value"])
        quota = Quota.objects.filter(tenant=tenant, limit=limit, is_own=False, **place).first()
        quota = quota or Quota(tenant=tenant, limit=limit, **place)
        quota.value, quota.is_hard = value, not options["soft"]
        if options["alert_at"]:
            quota.alert_percents = options["alert_at"]
        save_quota(quota)
        self.report(
            options,
            quota_id=str(quota.id),
            tenant=tenant.name,
            scope=quota.scope,
            limit=limit.value,
            value=quota.value,
            is_hard=quota.is_hard,
            alert_percents=" ".join(map(str, quota.alert_percents)),
        )


def _value_of(limit: LimitName, text: str) -> int:
    """Read a limit's value: nano-dollars for spend, else a count."""
    if limit in IN_NANOS:
        try:
            return int(dollar_amount(text) * 10**9)
        except ArgumentTypeError as error:
            raise CommandError(f"{limit}: {error}.") from None
    if not text.isdecimal():
        raise CommandError(f"{limit} takes a whole number, got {text!r}.")
    return int(text)
