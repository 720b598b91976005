"""LoRA adapters as callers name them: `acme/support` or `acme/support@3`, and which of two versions
answers a request that names none."""

import hashlib
import random
import re
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.policy import (
    WHOLE,
    AdapterPolicy,
    AdapterVersionPolicy,
    Caller,
    ModelPolicy,
)

_LONGEST: Final = 200
_NAME: Final = re.compile(
    r"((?P<slug>[a-z0-9]+(?:-[a-z0-9]+)*)/[a-z0-9]+(?:[._-][a-z0-9]+)*)"
    r"(?:@(?P<version>[1-9][0-9]{0,8}))?",
    re.ASCII,
)
# Multiples of it fall evenly into every part of a whole: of n requests in a row, each of two
# versions gets its share to within a few, whatever n and wherever they begin (Knuth, The Art of
# Computer Programming 3, 6.4).
_GOLDEN: Final = 0.6180339887498949
_TURNS_KEPT: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterName:
    """What a request's `model` says of an adapter. `version` None: as its traffic is set."""

    name: str
    slug: str
    version: int | None

    @classmethod
    def parsed(cls, model: str) -> "AdapterName | None":
        """Return the adapter that a name is of; None where it is the name of none."""
        match = _NAME.fullmatch(model) if len(model) <= _LONGEST else None
        if match is None:
            return None
        version = match["version"]
        number = int(version) if version else None
        return cls(name=match[1], slug=match["slug"], version=number)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenAdapter:
    """The adapter that answers a request, in the version that was chosen for it."""

    policy: AdapterPolicy
    version: AdapterVersionPolicy

    @property
    def label(self) -> str:
        return f"{self.policy.name}@{self.version.number}"


class Turns:
    """Whose turn it is of the requests of one gateway process that stick to nothing."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def next(self, adapter_name: str) -> float:
        """Return a number of at least 0 and below 1."""
        if len(self._last) >= _TURNS_KEPT:
            self._last.clear()
        # Gateways begin at different places.
        last = self._last.get(adapter_name, random.random())
        turn = self._last[adapter_name] = (last + _GOLDEN) % 1.0
        return turn


def choose(
    policy: AdapterPolicy, pinned: int | None, sticky: str, turns: Turns
) -> ChosenAdapter | None:
    """Return the version that is named, or else one by the shares of the traffic, always the same
    for the same `sticky`; None where there is none such.

    Of two the newer one takes from the lower end, so that whoever has it keeps it as its share
    grows.
    """
    if pinned is not None:
        found = [version for version in policy.versions if version.number == pinned]
        return ChosenAdapter(policy=policy, version=found[0]) if found else None
    taking = sorted(
        (version for version in policy.versions if version.permille > 0),
        key=lambda version: -version.number,
    )
    if not taking:
        return None
    version = taking[0]
    if len(taking) > 1:
        place = _place(policy.name, version.number, sticky) if sticky else turns.next(policy.name)
        if place * WHOLE >= version.permille:
            version = taking[1]
    return ChosenAdapter(policy=policy, version=version)


def may_use(caller: Caller, policy: AdapterPolicy, base: ModelPolicy) -> bool:
    """Tell whether a caller may use an adapter of its tenant. A key that lists adapters may use
    those, whatever models it may name; one that does not, those of the models that it may name."""
    key = caller.key
    if policy.tenant_id != caller.tenant_id:
        return False
    if base.tenant_ids is not None and caller.tenant_id not in base.tenant_ids:
        return False
    if key.adapters is not None:
        return policy.name in key.adapters
    return key.models is None or base.name in key.models


def _place(name: str, newest: int, sticky: str) -> float:
    """Return where somebody stands for this choice, from 0 to below 1; elsewhere for the next one,
    so that not the same people are the first each time."""
    seed = f"{name}\0{newest}\0{sticky}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(seed).digest()[:7]) / (1 << 56)
