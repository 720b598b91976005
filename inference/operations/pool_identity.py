"""What each pool serves: kind of engine, digest of its model. PostgreSQL has it for good; Redis has
the copy that the pool's door goes by, where the first worker says it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from django.db import transaction
from redis import Redis

from gpu_workers.protocol import keys
from inference.models import Pool
from inference.pools import alone
from tenants.audit.log import record
from tenants.isolation.audit_actor import Verb


class IdentityError(ValueError):
    """A sentence for the operator."""


@dataclass(frozen=True, kw_only=True)
class RefusedWorker:
    """The last worker that a pool did not let in."""

    name: str
    engine: str
    digest: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class PoolIdentity:
    """What a pool serves, empty before its first worker; an empty digest is not known. `refusals`
    counts workers that it did not let in, since Redis was last empty."""

    engine: str = ""
    digest: str = ""
    refusals: int = 0
    last_refused: RefusedWorker | None = None

    def differs_from(self, engine: str, digest: str) -> bool:
        """Return whether a worker with these would not be let in."""
        is_alike = not self.digest or not digest or self.digest == digest
        return bool(self.engine) and not (self.engine == engine and is_alike)


def read_identities(redis: Redis, pools: Iterable[str]) -> dict[str, PoolIdentity]:
    """Return by pool what Redis has of it."""
    found: dict[str, PoolIdentity] = {}
    for pool in pools:
        found[pool] = PoolIdentity()
        with alone(pool):
            found[pool] = identity_of(cast(Any, redis).hgetall(keys.pool_identity(pool)))
    return found


def identity_of(found: dict[bytes, bytes]) -> PoolIdentity:
    """Decode a pool's hash."""
    fields = {name.decode(): value.decode() for name, value in found.items()}
    refused = None
    if "refused_name" in fields:
        refused = RefusedWorker(
            name=fields["refused_name"],
            engine=fields["refused_engine"],
            digest=fields["refused_digest"],
            at=datetime.fromtimestamp(int(fields["refused_at"]) / 1000, UTC),
        )
    return PoolIdentity(
        engine=fields.get("engine", ""),
        digest=fields.get("digest", ""),
        refusals=int(fields.get("refused", 0)),
        last_refused=refused,
    )


def copy_identities(redis: Redis) -> None:
    """Put on record what first workers have said, and give back what Redis has lost. For an
    operator's scope."""
    pools = list(Pool.objects.values_list("name", "engine", "model_digest"))
    found = read_identities(redis, [name for name, _, _ in pools])
    for name, engine, digest in pools:
        if (found[name].engine, found[name].digest) != (engine, digest):
            with alone(name):
                _agree(redis, name)


@transaction.atomic
def pin(redis: Redis, pool: str, *, engine: str, digest: str) -> None:
    """Have a pool serve this from now on, or, both empty, what its next worker brings. Workers that
    run go on. For an operator's scope. Raises `IdentityError` for an unknown pool."""
    if digest and not engine:
        raise IdentityError("A digest needs the engine beside it: vllm or sim.")
    row = Pool.objects.select_for_update().filter(name=pool).first()
    if row is None:
        raise IdentityError(f"No pool named {pool!r}.")
    row.engine, row.model_digest = engine, digest
    row.save(update_fields=["engine", "model_digest"])
    record(Verb.PINNED if engine else Verb.UNPINNED, row, engine=engine, model_digest=digest)
    _write(redis, row)


@transaction.atomic
def _agree(redis: Redis, pool: str) -> None:
    """Make both copies say what PostgreSQL has, and what a first worker said beyond that."""
    row = Pool.objects.select_for_update().get(name=pool)
    found = read_identities(redis, [pool])[pool]
    is_completed = found.engine == row.engine and not row.model_digest
    if found.engine and (not row.engine or is_completed):
        row.engine, row.model_digest = found.engine, found.digest
        row.save(update_fields=["engine", "model_digest"])
        return
    _write(redis, row)


def _write(redis: Redis, row: Pool) -> None:
    key = keys.pool_identity(row.name)
    if not row.engine:
        redis.hdel(key, "engine", "digest")
        return
    fields: dict[Any, Any] = {"engine": row.engine, "digest": row.model_digest}
    cast(Any, redis).hset(key, mapping=fields)
