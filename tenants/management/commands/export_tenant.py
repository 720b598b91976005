"""manage.py export_tenant Acme --output acme.jsonl"""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from tenants.audit.log import record
from tenants.isolation.audit_actor import Verb
from tenants.isolation.scoping import operator_scope
from tenants.management.confirmation import add_yes, confirm
from tenants.management.look_up import tenant_named
from tenants.management.output import opened_output
from tenants.management.reporting import ReportingCommand
from tenants.offboarding.export import tenant_records


class Command(ReportingCommand):
    help = (
        "Export all data of a tenant as JSON lines: projects, keys (masked), members, "
        "quotas, usage records, audit log. Key digests are not included."
    )
    # The log knows of the export before the first line leaves, and is not locked all the while.
    is_one_transaction = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument(
            "--output", type=Path, help="path of a new file; must not already exist"
        )
        add_yes(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        with operator_scope("command export_tenant"):
            tenant = tenant_named(options["tenant"])
            confirm(options, tenant.name, f"writes out all data of {tenant.name}")
            record(Verb.EXPORTED, tenant, tenant_id=tenant.id)
        count = 0
        with (
            operator_scope("command export_tenant"),
            opened_output(options["output"], self.stdout) as write,
        ):
            for row in tenant_records(tenant):
                write(json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False) + "\n")
                count += 1
        if options["output"] is not None:
            self.report(
                options, tenant_id=str(tenant.id), records=count, output=str(options["output"])
            )
