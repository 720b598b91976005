"""manage.py list_served_models"""

from typing import Any

from inference.models import ServedModel
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    def handle(self, *_: Any, **options: Any) -> None:
        models = ServedModel.objects.prefetch_related("tenants").order_by("name")
        rows: list[dict[str, Fact]] = [
            {
                "name": model.name,
                "pool": model.pool_id,
                "context_tokens": model.context_tokens,
                "capabilities": " ".join(model.capabilities),
                "is_enabled": model.is_enabled,
                "tenants": ", ".join(sorted(tenant.name for tenant in model.tenants.all()))
                or "all",
            }
            for model in models
        ]
        self.report_rows(options, rows, of="models")
