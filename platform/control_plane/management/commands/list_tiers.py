"""manage.py list_tiers"""

from typing import Any

from django.db.models import Count, Q

from tenants.management.reporting import Fact, ReportingCommand
from tenants.models import Tier


class Command(ReportingCommand):
    def handle(self, *_: Any, **options: Any) -> None:
        members = Count("tenants", filter=Q(tenants__closed_at=None))
        rows: list[dict[str, Fact]] = [
            {
                "name": tier.name,
                "service_class": tier.service_class,
                "priority": tier.priority,
                "weight": tier.weight,
                "ttft_target_ms": tier.ttft_target_ms,
                "requests_per_minute": tier.requests_per_minute,
                "tokens_per_minute": tier.tokens_per_minute,
                "tenants": tier.members,
            }
            for tier in Tier.objects.annotate(members=members).order_by("priority", "name")
        ]
        self.report_rows(options, rows, of="tiers")
