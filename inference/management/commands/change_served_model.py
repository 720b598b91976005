"""manage.py change_served_model org/model --disable"""

from typing import Any

from django.core.management.base import CommandParser

from gpu_workers.protocol.policy import Capability
from inference.management.look_up import model_named, visible_to
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name")
        shown = parser.add_mutually_exclusive_group()
        shown.add_argument("--enable", dest="is_enabled", action="store_true", default=None)
        shown.add_argument("--disable", dest="is_enabled", action="store_false")
        parser.add_argument(
            "--capability",
            action="append",
            choices=[each.value for each in Capability],
            help="what requests may use, in place of all before; repeatable",
        )
        who = parser.add_mutually_exclusive_group()
        who.add_argument("--visible-to", action="append", metavar="TENANT", help="may be repeated")
        who.add_argument("--visible-to-everybody", action="store_true")

    def handle(self, *_: Any, **options: Any) -> None:
        model = model_named(options["name"])
        if options["is_enabled"] is not None:
            model.is_enabled = options["is_enabled"]
            model.save(update_fields=["is_enabled"])
        if options["capability"]:
            model.capabilities = options["capability"]
            model.save(update_fields=["capabilities"])
        if options["visible_to"] or options["visible_to_everybody"]:
            model.tenants.set(visible_to(options["visible_to"]))
        names = sorted(tenant.name for tenant in model.tenants.all())
        self.report(
            options,
            model_id=str(model.id),
            name=model.name,
            is_enabled=model.is_enabled,
            capabilities=" ".join(model.capabilities),
            visible_to=", ".join(names) or "everybody",
        )
