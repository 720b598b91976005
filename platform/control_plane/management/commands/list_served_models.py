"""manage.py list_served_models [--pool POOL] [--search llama]"""

from typing import Any

from django.core.management.base import CommandParser

from inference.models import ServedModel
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--pool", help="only those that this pool serves")
        parser.add_argument("--search", default="", help="only those whose name contains this")

    def handle(self, *_: Any, **options: Any) -> None:
        found = ServedModel.objects.filter(name__icontains=options["search"])
        if options["pool"] is not None:
            found = found.filter(pool=options["pool"])
        models = found.prefetch_related("tenants").order_by("name")
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
