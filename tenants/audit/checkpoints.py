"""How far chains of records have been verified, so that fsck goes on from there each night.

A chain is verified in pages, each in a snapshot of its own, and what is whole is kept as a
checkpoint: its last record's number and hash, and what all records up to it come to. It is signed
under Django's secret, so whoever can write to PostgreSQL alone cannot have records passed over.
A run that is cut short loses a page; a chain that is broken is told of again each time, from the
last checkpoint before that.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from django.core.signing import BadSignature, Signer

from tenants.audit.chain import FIRST_HASH
from tenants.isolation.scoping import operator_scope
from tenants.models.audit import ChainCheckpoint

# Records of a page.
PAGE: Final = 2000
_SALT: Final = "tenants.audit.checkpoints"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A record of a chain up to which all is whole, and sums of them by name."""

    sequence: int = 0
    hash: bytes = FIRST_HASH
    sums: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a page has shown: the place after it, what is wrong, whether it was the last."""

    place: Place
    problems: list[str]
    is_last: bool


class ChainedLog(Protocol):
    """Records in chains, and how they are verified."""

    name: str

    def chains(self) -> Iterable[uuid.UUID]:
        """Return all chains there are, or should be."""

    def advance(self, chain: uuid.UUID, place: Place) -> Step:
        """Verify that the record at a place is still there, and the next page; of the last one that
        all that says where the chain ends is right."""


def verify_from_checkpoints(
    log: ChainedLog, view: Callable[[], AbstractContextManager[None]], *, whole: bool = False
) -> Iterator[str]:
    """Yield what is wrong, chain by chain; `whole`: from their beginnings. Opens a scope for each
    page, in what `view` opens, and another for its checkpoint."""
    with view(), operator_scope(f"fsck {log.name}"):
        chains = sorted(set(log.chains()))
    for chain in chains:
        yield from _verify(log, chain, view, whole=whole)


def verify_whole(log: ChainedLog) -> Iterator[str]:
    """Yield what is wrong, from the beginnings, in the open scope and transaction."""
    for chain in sorted(set(log.chains())):
        place, is_last = Place(), False
        while not is_last:
            step = log.advance(chain, place)
            yield from step.problems
            place, is_last = step.place, step.is_last


def _verify(
    log: ChainedLog,
    chain: uuid.UUID,
    view: Callable[[], AbstractContextManager[None]],
    *,
    whole: bool,
) -> Iterator[str]:
    place: Place | None = Place() if whole else None
    is_sound, is_last = True, False
    while not is_last:
        unsigned = ""
        with view(), operator_scope(f"fsck {log.name}"):
            if place is None:
                place, unsigned = _checkpoint(log.name, chain)
            step = log.advance(chain, place)
        if unsigned:
            yield unsigned
        yield from step.problems
        is_sound = is_sound and not step.problems
        if is_sound and step.place != place:
            with operator_scope(f"fsck {log.name}"):
                _keep(log.name, chain, step.place)
        place, is_last = step.place, step.is_last


def _checkpoint(log: str, chain: uuid.UUID) -> tuple[Place, str]:
    """Return where a chain's verification goes on, and what is wrong with what says so."""
    row = ChainCheckpoint.objects.filter(log=log, chain=chain).first()
    if row is None:
        return Place(), ""
    place = Place(sequence=row.sequence, hash=bytes(row.hash), sums=row.sums)
    try:
        Signer(salt=_SALT).unsign(f"{_text(log, chain, place)}:{row.signature}")
    except BadSignature:
        return Place(), f"The checkpoint of the {log} {chain} is not one that fsck has signed."
    return place, ""


def _keep(log: str, chain: uuid.UUID, place: Place) -> None:
    ChainCheckpoint.objects.update_or_create(
        log=log,
        chain=chain,
        defaults={
            "sequence": place.sequence,
            "hash": place.hash,
            "sums": place.sums,
            "signature": Signer(salt=_SALT).signature(_text(log, chain, place)),
        },
    )


def _text(log: str, chain: uuid.UUID, place: Place) -> str:
    sums = json.dumps(place.sums, sort_keys=True)
    return f"{log} {chain} {place.sequence} {place.hash.hex()} {sums}"
