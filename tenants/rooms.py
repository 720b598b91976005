"""What a room keeps of tenants, as one value that its app collects when it is ready."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenants import fsck
from tenants.offboarding.closing import Eraser, Settlement, register_eraser, register_settlement
from tenants.offboarding.export import Source, register_export
from tenants.permissions import Permission


@dataclass(frozen=True, kw_only=True)
class Room:
    """`exports` are what a tenant may take along, by kind, each with the permission that it takes
    elsewhere; `checks` what fsck asks, by name. When a tenant is closed its money is settled by
    `settlements`, and then what is kept of its people goes by `erasers`, in one transaction."""

    exports: Mapping[str, tuple[Source, Permission]] = field(default_factory=dict)
    settlements: tuple[Settlement, ...] = ()
    erasers: tuple[Eraser, ...] = ()
    checks: Mapping[str, fsck.RegisteredCheck] = field(default_factory=dict)


def collect(*rooms: Room) -> None:
    """Have exports, closings and fsck know these rooms; a second time changes nothing."""
    for room in rooms:
        for kind, (source, permission) in room.exports.items():
            register_export(kind, source, permission)
        for settle in room.settlements:
            register_settlement(settle)
        for erase in room.erasers:
            register_eraser(erase)
        for name, check in room.checks.items():
            fsck.register(name, check)
