"""manage.py usage_quarantine list | retry | discard"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.models import UsageQuarantine
from inference.usage import quarantine
from tenants.management.reporting import ReportingCommand

_SHOWN = 1000


class Command(ReportingCommand):
    help = (
        "Usage that could not be recorded and is charged to nobody: list it, ingest it "
        "again once the cause is fixed (entries by id, or all), or discard entries "
        "permanently."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=["list", "retry", "discard"])
        parser.add_argument(
            "id", nargs="*", type=int, help="entry ids; retry without ids means all"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        action, ids = options["action"], options["id"]
        if action == "list":
            if ids:
                raise CommandError("usage_quarantine list takes no id.")
            self.report_rows(
                options,
                [_row(row) for row in UsageQuarantine.objects.all()[:_SHOWN]],
                of="entries in quarantine",
            )
            return
        present = UsageQuarantine.objects.filter(id__in=ids)
        if missing := set(ids) - set(present.values_list("id", flat=True)):
            raise CommandError(
                f"Not in quarantine: {', '.join(map(str, sorted(missing)))}; see "
                "`usage_quarantine list`."
            )
        if action == "retry":
            recorded, left = quarantine.retry(ids)
            self.report(options, recorded=recorded, left=left)
        elif not ids:
            raise CommandError("usage_quarantine discard takes the ids of the entries to delete.")
        else:
            present.delete()
            self.report(options, discarded=len(ids))


def _row(row: UsageQuarantine) -> dict[str, Any]:
    return {
        "id": row.id,
        "quarantined_at": row.quarantined_at,
        "pool": row.pool,
        "stream_id": row.stream_id,
        "cause": row.cause,
        "reason": row.reason,
        "bytes": len(row.entry),
    }
