"""Which workers have a version, as they say themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.models.adapter import HELD_STATES, AdapterVersion
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

# What a version that is ready is shown as while workers have it.
LIVE: Final = "live"


@dataclass(frozen=True, kw_only=True)
class WorkerCounts:
    """On how many workers a version is, each of them counted once, where it has it nearest."""

    disk: int = 0
    memory: int = 0
    slot: int = 0

    @property
    def workers(self) -> int:
        return self.disk + self.memory + self.slot


NOBODY: Final = WorkerCounts()


def worker_counts_of(
    pool: str, versions: Sequence[AdapterVersion]
) -> dict[int, WorkerCounts] | None:
    """Return where a pool's workers have versions of one adapter, by their numbers, in one round
    trip; None while nobody can tell."""
    found = dict.fromkeys((version.number for version in versions), NOBODY)
    asked = [version for version in versions if may_be_held(version)]
    if not asked:
        return found
    try:
        with policy_redis().pipeline(transaction=False) as pipeline:
            for version in asked:
                key = keys.pool_adapter_workers(pool, version.opaque_name)
                # Below these stands one that is to get it.
                for level in AdapterLevel:
                    pipeline.zcount(key, int(level), int(level))
            counts = iter(pipeline.execute())
    except (RedisError, OSError) as error:
        log.warning("adapter_holders_unknown", pool=pool, reason=repr(error))
        return None
    for version in asked:
        disk, memory, slot = (int(next(counts)) for _ in AdapterLevel)
        found[version.number] = WorkerCounts(disk=disk, memory=memory, slot=slot)
    return found


def may_be_held(version: AdapterVersion) -> bool:
    """Return whether workers may have it: of the others nothing is stored."""
    return version.state in HELD_STATES


def state_of(version: AdapterVersion, holders: WorkerCounts | None) -> str:
    """Return a version's state as people are told it: `live` is one that is ready and that workers
    have."""
    is_live = version.is_ready and holders is not None and holders.workers > 0
    return LIVE if is_live else str(version.state)
