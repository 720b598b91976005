"""manage.py create_served_model org/model --pool gpu-a --context 32768"""

from typing import Any

from django.core.management.base import CommandParser

from gpu_workers.protocol.policy import Capability
from inference.management.look_up import visible_to
from inference.models import Pool, ServedModel
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name")
        parser.add_argument("--pool", help="pool of workers that serves it (default: its name)")
        parser.add_argument(
            "--context",
            type=int,
            required=True,
            help="context length in tokens, prompt and completion together",
        )
        parser.add_argument(
            "--capability",
            action="append",
            choices=[each.value for each in Capability],
            help="what requests may use; repeatable (default: chat and completions)",
        )
        parser.add_argument(
            "--visible-to", action="append", metavar="TENANT", help="default: all tenants"
        )
        parser.add_argument("--disabled", action="store_true", help="do not show it to callers yet")

    def handle(self, *_: Any, **options: Any) -> None:
        tenants = visible_to(options["visible_to"])
        pool = Pool(name=options["pool"] or options["name"])
        pool.full_clean(validate_unique=False)
        if not Pool.objects.filter(name=pool.name).exists():
            pool.save()
        model = ServedModel(
            name=options["name"],
            pool=pool,
            context_tokens=options["context"],
            is_enabled=not options["disabled"],
        )
        if options["capability"]:
            model.capabilities = options["capability"]
        model.full_clean()
        model.save()
        model.tenants.set(tenants)
        self.report(
            options,
            model_id=str(model.id),
            name=model.name,
            pool=pool.name,
            is_enabled=model.is_enabled,
            capabilities=" ".join(model.capabilities),
            visible_to=", ".join(tenant.name for tenant in tenants) or "everybody",
        )
