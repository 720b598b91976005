"""The tenants of the proof, their adapters, and the versions of these. Needs nothing but Python:
the engine's environment has none of the tests' packages."""

import hashlib
from dataclasses import dataclass
from typing import Final

VERSIONS: Final = 2
# Of so many tenants, every second one has one adapter with the very weights of the one before it:
# their answers are the same, and what is cached of them must not be.
_TWIN: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One version of one tenant's adapter; two of the same `seed` have the same weights."""

    tenant: str
    name: str
    number: int
    seed: int

    @property
    def label(self) -> str:
        return f"{self.name}@{self.number}"

    @property
    def opaque(self) -> str:
        """Return what queues and engines call it."""
        return hashlib.sha256(self.label.encode()).hexdigest()


def tenants_of(count: int) -> list[str]:
    return [f"tenant{number:02}" for number in range(count)]


def versions_of(tenants: list[str], count: int) -> list[Version]:
    """Return so many versions, or as many as come out even: the same number of adapters for each
    tenant, of two versions each."""
    each = max(1, count // (len(tenants) * VERSIONS))
    versions = []
    for place, tenant in enumerate(tenants):
        for adapter in range(each):
            for number in range(1, VERSIONS + 1):
                is_twin = place % _TWIN == 1 and adapter == 0 and number == 1
                seed = ((place - is_twin) * each + adapter) * VERSIONS + number
                name = f"{tenant}/adapter-{adapter}"
                versions.append(Version(tenant=tenant, name=name, number=number, seed=seed))
    return versions
