"""What a room of this app brings: what it keeps of tenants, and its blobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inference.blobs import sweep
from tenants import rooms


@dataclass(frozen=True, kw_only=True)
class Room(rooms.Room):
    """`blobs` are the references to those that the room stores, by the first part of their path."""

    blobs: Mapping[str, sweep.References] = field(default_factory=dict)


def collect(*brought: Room) -> None:
    """Have these rooms known by all that asks rooms; a second time changes nothing."""
    rooms.collect(*brought)
    for room in brought:
        for kind, references in room.blobs.items():
            sweep.register_owner(kind, references)
