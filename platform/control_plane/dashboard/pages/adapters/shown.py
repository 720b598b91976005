"""What pages show of adapters: what answers, in words, and the state of a version."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from inference.adapters.worker_counts import WorkerCounts, worker_counts_of
from inference.models.adapter import Adapter, AdapterVersion


@dataclass(frozen=True, kw_only=True)
class Share:
    """A version's part of the requests that name none."""

    number: int
    percent: Decimal


@dataclass(frozen=True, kw_only=True)
class VersionRow:
    """`holders` None: it is not ready, or nobody can tell which workers have it."""

    version: AdapterVersion
    percent: Decimal
    holders: int | None

    @property
    def may_be_promoted(self) -> bool:
        return self.version.is_ready and self.percent != 100


@dataclass(frozen=True, kw_only=True)
class AdapterRow:
    """`newest` is the version that was added last, unless it was deleted."""

    adapter: Adapter
    count: int
    newest: AdapterVersion | None
    shares: list[Share]


def adapter_row(adapter: Adapter) -> AdapterRow:
    """Return an adapter that was listed, with its versions."""
    versions = list(adapter.versions.all())
    newest = max(versions, key=lambda version: version.number, default=None)
    return AdapterRow(
        adapter=adapter, count=len(versions), newest=newest, shares=shares_of(adapter)
    )


def shares_of(adapter: Adapter) -> list[Share]:
    return [
        Share(number=share["version"], percent=_percent(share["permille"]))
        for share in adapter.shares
    ]


def version_rows(adapter: Adapter, versions: list[AdapterVersion]) -> list[VersionRow]:
    """Return versions of one adapter with what answers and who holds them."""
    ready = [version for version in versions if version.is_ready]
    held: Mapping[int, WorkerCounts] = worker_counts_of(adapter.model.pool_id, ready) or {}
    return [
        VersionRow(
            version=version,
            percent=_percent(adapter.permille_of(version.number)),
            holders=held[version.number].workers if version.number in held else None,
        )
        for version in versions
    ]


def _percent(permille: int) -> Decimal:
    return Decimal(permille) / 10
