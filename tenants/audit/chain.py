"""The audit log's arithmetic: how an event is hashed, and whether a chain of them is whole.

Standard library only, so that an exported log can be checked without Penstock. PostgreSQL makes the
same hashes in `audit.sql`; this is written anew, not called by it.

    encode(parts)     for each text: its length in UTF-8 bytes, in decimal; a colon; the bytes
    personal_digest   SHA-256(salt + encode(actor_name, address, record_name, personal_changes))
    hash              SHA-256(hash of the event before + encode(chain, sequence, at, actor_kind,
                      actor_id, verb, record_kind, record_id, changes, personal_digest in hex))

`chain` is the tenant's id, or the id of zeros for events without a tenant. `sequence` counts from 1
in each chain, and the hash before the first is that of no bytes. `at` is UTC, as in
2026-01-31T12:00:00.123456Z. `changes` is the JSON text as it stands, not parsed and written again.
Where the personal detail of an event was erased, its digest is all that is left, and is enough.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NO_TENANT = "00000000-0000-0000-0000-000000000000"
FIRST_HASH = hashlib.sha256(b"").digest()


@dataclass(frozen=True, kw_only=True)
class ChainedEvent:
    """What is hashed of an event; `personal` None where it was erased."""

    chain: str
    sequence: int
    at: str
    actor_kind: str
    actor_id: str
    verb: str
    record_kind: str
    record_id: str
    changes: str
    personal_digest: bytes
    hash: bytes
    salt: bytes = b""
    personal: tuple[str, str, str, str] | None = None

    @classmethod
    def from_export(cls, line: Mapping[str, Any]) -> "ChainedEvent":
        """Build an event from an object of `manage.py export_audit --format jsonl`; a row of the
        CSV has the same names and works as well."""
        erased = line["salt"] in (None, "")
        return cls(
            chain=line["chain"],
            sequence=int(line["sequence"]),
            at=line["at"],
            actor_kind=line["actor_kind"],
            actor_id=line["actor_id"],
            verb=line["verb"],
            record_kind=line["record_kind"],
            record_id=line["record_id"],
            changes=line["changes"],
            personal_digest=bytes.fromhex(line["personal_digest"]),
            hash=bytes.fromhex(line["hash"]),
            salt=b"" if erased else bytes.fromhex(line["salt"]),
            personal=None
            if erased
            else (
                line["actor_name"],
                line["address"],
                line["record_name"],
                line["personal_changes"],
            ),
        )


@dataclass(kw_only=True)
class ChainCheck:
    """Goes along chains, event by event, in the order of each chain's sequence.

    A check may begin in the middle of a chain (an export since some day): pass `from_start` False,
    and the first event seen of each chain is taken as given.
    """

    from_start: bool = True
    last: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def problems(self, event: ChainedEvent) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the next event."""
        where = f"event {event.sequence} of chain {event.chain}"
        before = self.last.get(event.chain, (0, FIRST_HASH) if self.from_start else None)
        self.last[event.chain] = (event.sequence, event.hash)
        if event.personal is not None and event.personal_digest != personal_digest(event):
            yield f"{where}: its names, its address or the personal changes are not as recorded."
        if before is None:
            return
        if event.sequence != before[0] + 1:
            yield f"{where}: the event before it is {before[0]}, so some are missing."
        elif event.hash != event_hash(event, before[1]):
            yield f"{where}: it or the event before it is not as recorded."


def broken(lines: Iterable[Mapping[str, Any]], *, from_start: bool = True) -> Iterator[str]:
    """Yield what is wrong with an exported log, given its lines in the order they were written."""
    check = ChainCheck(from_start=from_start)
    for line in lines:
        yield from check.problems(ChainedEvent.from_export(line))


def event_hash(event: ChainedEvent, previous_hash: bytes) -> bytes:
    return hashlib.sha256(
        previous_hash
        + encode(
            event.chain,
            str(event.sequence),
            event.at,
            event.actor_kind,
            event.actor_id,
            event.verb,
            event.record_kind,
            event.record_id,
            event.changes,
            event.personal_digest.hex(),
        )
    ).digest()


def personal_digest(event: ChainedEvent) -> bytes:
    return hashlib.sha256(event.salt + encode(*(event.personal or ()))).digest()


def encode(*parts: str) -> bytes:
    """Encode texts such that no two lists give the same bytes."""
    encoded = (part.encode() for part in parts)
    return b"".join(b"%d:%s" % (len(part), part) for part in encoded)
