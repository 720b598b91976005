"""manage.py dedicate_pool gpu-a Acme"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.management.look_up import visible_to
from inference.models import Pool
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("pool")
        parser.add_argument("tenants", nargs="*", metavar="tenant", help="name or id")
        parser.add_argument("--everybody", action="store_true")

    def handle(self, *_: Any, **options: Any) -> None:
        pool = Pool.objects.filter(name=options["pool"]).first()
        if pool is None:
            raise CommandError(f"No pool named {options['pool']!r}.")
        if bool(options["tenants"]) == options["everybody"]:
            raise CommandError("Name the tenants that it serves, or pass --everybody.")
        tenants = visible_to(options["tenants"])
        pool.tenants.set(tenants)
        serves = ", ".join(tenant.name for tenant in tenants) or "everybody"
        self.report(options, pool=pool.name, serves=serves)
