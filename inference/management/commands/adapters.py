"""manage.py adapters list | show acme/support | point acme/support 2 | pin | archive | delete"""

import re
from typing import Any

from django.core.management.base import CommandError, CommandParser

from gpu_workers.protocol.policy import WHOLE
from inference.adapters.lifecycle import (
    archive_version,
    delete_adapter,
    delete_version,
    pin_adapter,
    set_traffic_split,
    unpin_adapter,
)
from inference.adapters.lists import with_totals
from inference.adapters.worker_counts import WorkerCounts, state_of, worker_counts_of
from inference.management.look_up import adapter_named, version_named
from inference.models import Adapter, AdapterVersion
from tenants.management.confirmation import add_yes, confirm
from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand

_SHARE = re.compile(r"([0-9]{1,9})(?::([0-9]{1,4}))?", re.ASCII)


class Command(ReportingCommand):
    help = (
        "LoRA adapters of tenants: list them, show one with its versions, point its traffic at a "
        "version (promote, roll back) or at two by weight, pin or unpin it, archive a version, "
        "delete a version or an adapter. `upload_adapter` adds versions."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        actions = ["list", "show", "point", "pin", "unpin", "archive", "delete"]
        parser.add_argument("action", choices=actions)
        parser.add_argument(
            "name", nargs="?", help="acme/support, or acme/support@2 for one version"
        )
        parser.add_argument(
            "shares",
            nargs="*",
            metavar="version",
            help="point: a version's number, or two with their shares in permille (1:900 2:100)",
        )
        parser.add_argument("--tenant", help="list: name or id; default: all")
        parser.add_argument("--archived", action="store_true", help="list: those that were deleted")
        add_yes(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        action, name = options["action"], options["name"]
        if (action == "list") == bool(name):
            wanted = "takes no name; see --tenant" if name else "takes the name of an adapter"
            raise CommandError(f"adapters {action} {wanted}.")
        if (action == "point") != bool(options["shares"]):
            wanted = "takes a version's number" if action == "point" else "takes one name"
            raise CommandError(f"adapters {action} {wanted}.")
        getattr(self, f"_{action}")(options, name)

    def _list(self, options: dict[str, Any], _name: None) -> None:
        rows = Adapter.objects.filter(archived_at__isnull=not options["archived"])
        if options["tenant"]:
            rows = rows.filter(tenant=tenant_named(options["tenant"]))
        found = with_totals(rows).select_related("tenant").order_by("tenant__slug", "slug")
        self.report_rows(options, [_row(adapter) for adapter in found], of="adapters")

    def _show(self, options: dict[str, Any], name: str) -> None:
        adapter = adapter_named(name)
        versions = list(adapter.versions.select_related("adapter__tenant").order_by("-number"))
        held = worker_counts_of(adapter.model.pool_id, versions)
        rows = [_version(each, held.get(each.number) if held else None) for each in versions]
        self.report_with_rows(options, _facts(adapter), rows, of="versions")

    def _point(self, options: dict[str, Any], name: str) -> None:
        adapter = adapter_named(name)
        before = _traffic(adapter)
        pointed = set_traffic_split(adapter, _shares(options["shares"]))
        self.report(
            options, name=pointed.name, traffic_before=before or None, traffic=_traffic(pointed)
        )

    def _pin(self, options: dict[str, Any], name: str) -> None:
        self.report(options, **_facts(pin_adapter(adapter_named(name))))

    def _unpin(self, options: dict[str, Any], name: str) -> None:
        self.report(options, **_facts(unpin_adapter(adapter_named(name))))

    def _archive(self, options: dict[str, Any], name: str) -> None:
        if "@" not in name:
            raise CommandError(
                f"adapters archive takes one version, such as {name}@1; `adapters delete {name}` "
                "ends all of them."
            )
        version = version_named(name)
        confirm(options, name, f"ends {name} for new requests, for good", whose="its name")
        self.report(options, **_version(archive_version(version), None))

    def _delete(self, options: dict[str, Any], name: str) -> None:
        if "@" in name:
            version = version_named(name)
            confirm(options, name, f"deletes {name} for good", whose="its name")
            self.report(options, **_version(delete_version(version), None))
            return
        adapter = adapter_named(name)
        confirm(options, name, f"deletes {name} with all its versions for good", whose="its name")
        self.report(options, **_facts(delete_adapter(adapter)))


def _shares(texts: list[str]) -> dict[int, int]:
    """Return versions with their shares in permille; one alone has all."""
    shares: dict[int, int] = {}
    for text in texts:
        match = _SHARE.fullmatch(text)
        if match is None or (match[2] is None and len(texts) > 1):
            raise CommandError(
                "Name one version, such as 2, or two with their shares in permille, such as "
                f"1:900 2:100; got {' '.join(texts)!r}."
            )
        if int(match[1]) in shares:
            raise CommandError(f"Name each version once; {match[1]} is named twice.")
        shares[int(match[1])] = WHOLE if match[2] is None else int(match[2])
    return shares


def _traffic(adapter: Adapter) -> str:
    """Return the traffic as `point` takes it."""
    shares = adapter.shares
    if len(shares) == 1:
        return str(shares[0]["version"])
    return " ".join(f"{share['version']}:{share['permille']}" for share in shares)


def _row(adapter: Any) -> dict[str, Fact]:
    return {
        "name": adapter.name,
        "model": adapter.model_id,
        "traffic": _traffic(adapter),
        "versions": adapter.version_count,
        "stored_bytes": adapter.stored_bytes,
        "created_at": adapter.created_at,
    }


def _facts(adapter: Adapter) -> dict[str, Fact]:
    return {
        "adapter_id": str(adapter.id),
        "name": adapter.name,
        "tenant": adapter.tenant.name,
        "model": adapter.model_id,
        "traffic": _traffic(adapter) or None,
        "pinned_at": adapter.pinned_at,
        "created_at": adapter.created_at,
        "archived_at": adapter.archived_at,
    }


def _version(version: AdapterVersion, holders: WorkerCounts | None) -> dict[str, Fact]:
    """`workers` is None while nobody can tell."""
    return {
        "version": str(version),
        "state": state_of(version, holders),
        "workers": None if holders is None else holders.workers,
        "permille": version.adapter.permille_of(version.number),
        "rank": version.rank,
        "stored_bytes": version.stored_bytes,
        "refusal_code": version.refusal_code or None,
        "refusal": version.refusal or None,
        "delete_at": version.delete_at,
        "created_at": version.created_at,
    }
