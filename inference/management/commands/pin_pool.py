"""manage.py pin_pool demo --next | --engine vllm [--digest sha256:...]"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.operations.pool_identity import IdentityError, pin, read_identities
from inference.usage.collector import dispatch_redis
from tenants.isolation.scoping import operator_scope
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = (
        "Show or change what a pool serves. Workers that bring another engine or model are refused "
        "when they register."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("pool")
        change = parser.add_mutually_exclusive_group()
        change.add_argument(
            "--next", action="store_true", help="the next worker that registers decides"
        )
        change.add_argument("--engine", choices=["vllm", "sim"], help="the kind of engine")
        parser.add_argument("--digest", default="", help="the model's digest; needs --engine")

    def handle(self, *_: Any, **options: Any) -> None:
        pool = options["pool"]
        if options["digest"] and not options["engine"]:
            raise CommandError("--digest needs --engine.")
        with dispatch_redis() as redis:
            if options["next"] or options["engine"]:
                try:
                    with operator_scope("what a pool serves"):
                        engine = options["engine"] or ""
                        pin(redis, pool, engine=engine, digest=options["digest"])
                except IdentityError as error:
                    raise CommandError(str(error)) from None
            identity = read_identities(redis, [pool])[pool]
        self.report(
            options,
            pool=pool,
            engine=identity.engine or "that of the next worker",
            model_digest=identity.digest or "not known",
            refused_workers=identity.refusals,
        )
