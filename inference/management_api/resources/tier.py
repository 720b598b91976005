"""GET tier: what the tenant has bought. Changing it is the operator's."""

from typing import ClassVar

from rest_framework.response import Response

from inference.management_api.view import TenantView
from tenants.permissions import Permission


class TierView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW}

    def get(self) -> Response:
        tier = self.tenant.tier
        return Response(
            {
                "object": "tier",
                "name": tier.name,
                "service_class": tier.service_class,
                "weight": tier.weight,
                "ttft_target_ms": tier.ttft_target_ms,
                "inter_token_target_ms": tier.inter_token_target_ms,
                "uptime_percent": tier.uptime_percent,
                "max_queue_seconds": tier.max_queue_seconds,
                "requests_per_minute": tier.requests_per_minute,
                "tokens_per_minute": tier.tokens_per_minute,
                "max_concurrent_requests": tier.max_concurrent_requests,
                "max_context_tokens": tier.max_context_tokens,
                "default_max_output_tokens": tier.default_max_output_tokens,
                "max_output_tokens": tier.max_output_tokens,
                "price_multiplier": tier.price_multiplier,
            }
        )
