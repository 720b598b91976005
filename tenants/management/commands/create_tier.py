"""manage.py create_tier gold --preset interactive"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.access.default_tiers import PRESETS, tier_from_preset
from tenants.management.reporting import ReportingCommand
from tenants.models import ServiceClass


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name")
        parser.add_argument("--preset", required=True, choices=[name.value for name in PRESETS])

    def handle(self, *_: Any, **options: Any) -> None:
        tier = tier_from_preset(options["name"], ServiceClass(options["preset"]))
        tier.full_clean()
        tier.save()
        self.report(
            options,
            tier_id=str(tier.id),
            name=tier.name,
            service_class=tier.service_class,
            ttft_target_ms=tier.ttft_target_ms,
            inter_token_target_ms=tier.inter_token_target_ms,
            requests_per_minute=tier.requests_per_minute,
            tokens_per_minute=tier.tokens_per_minute,
            max_concurrent_requests=tier.max_concurrent_requests,
            price_multiplier=str(tier.price_multiplier),
        )
