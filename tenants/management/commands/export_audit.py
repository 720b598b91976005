"""manage.py export_audit --tenant Acme --since 2026-01-01 --format jsonl

Each line is an event with all that its hash covers, chain by chain and each in its order, so that
the log can be checked by others: `tenants/audit/chain.py` tells how a hash is made, needs nothing
but Python, and has `broken(lines)` that finds what is missing or was changed:

    import json
    from tenants.audit.chain import broken
    print(*broken(map(json.loads, open("audit.jsonl"))), sep="\\n")

With `--since` a chain begins in its middle: `broken(lines, from_start=False)`.
"""

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from tenants.audit.log import events_since, exported_events, record
from tenants.isolation.audit_actor import Verb
from tenants.isolation.scoping import operator_scope
from tenants.management.look_up import tenant_named
from tenants.management.output import opened_output
from tenants.management.reporting import ReportingCommand
from tenants.models import AuditEvent


class Command(ReportingCommand):
    # As with export_tenant.
    is_one_transaction = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tenant", help="name or id (default: all)")
        parser.add_argument("--since", help="a date or time, such as 2026-01-31 (UTC)")
        parser.add_argument("--format", choices=["jsonl", "csv"], default="jsonl")
        parser.add_argument(
            "--output", type=Path, help="path of a new file; must not already exist"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        moment = _moment(options["since"])
        with operator_scope("command export_audit"):
            tenant = tenant_named(options["tenant"]) if options["tenant"] else None
            tenant_id = None if tenant is None else tenant.id
            record(Verb.EXPORTED, tenant, tenant_id=tenant_id, what="audit log")
        count = 0
        with (
            operator_scope("command export_audit"),
            opened_output(options["output"], self.stdout) as write,
        ):
            events = AuditEvent.objects.all()
            if tenant is not None:
                events = events.filter(tenant=tenant)
            if moment is not None:
                events = events_since(events, moment)
            line = _csv_writer(write) if options["format"] == "csv" else _json_writer(write)
            for event in exported_events(events):
                line(event)
                count += 1
        if options["output"] is not None:
            self.report(options, events=count, output=str(options["output"]))


def _json_writer(write: Callable[[str], object]) -> Callable[[dict[str, Any]], object]:
    return lambda event: write(json.dumps(event, ensure_ascii=False) + "\n")


def _csv_writer(write: Callable[[str], object]) -> Callable[[dict[str, Any]], object]:
    class _File:
        def write(self, text: str) -> object:
            return write(text)

    writer: csv.DictWriter[str] | None = None

    def line(event: dict[str, Any]) -> None:
        nonlocal writer
        if writer is None:
            writer = csv.DictWriter(_File(), fieldnames=list(event))
            writer.writeheader()
        writer.writerow(event)

    return line


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is not a date or time such as 2026-01-31.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
