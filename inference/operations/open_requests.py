"""What a tenant has open now: how much runs and waits in each pool, and its oldest requests with
their places in the queue."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from gpu_workers.protocol import functions, keys
from inference.admission.reservations import Reservation, read_reservation
from inference.dispatch.answers import known_wait
from inference.dispatch.queue import RequestState

REQUESTS_SHOWN: Final = 10
# Of more the oldest are not looked for: a page that many look at asks this every second.
_MOST_READ: Final = 500


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """What a tenant has in one pool. `position` is that of one more request, 0 where it need not
    wait, and `wait_ms` what it can expect, None where nobody can tell."""

    pool: str
    running: int
    waiting: int
    position: int
    wait_ms: int | None

    def position_of(self, place: int) -> int:
        """Return how many are served before the tenant's `place`-th request that waits, itself
        counted: others have their turns between them, as before one more."""
        return max(place, -(-self.position * place // (self.waiting + 1)))


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """A request that has not ended. `position` is its place in its pool's queue, None where it does
    not wait or nobody can tell."""

    request_id: str
    key_id: str
    project_id: str
    pool: str
    state: RequestState
    at_ms: int
    attempt: int
    position: int | None


@dataclass(frozen=True, kw_only=True)
class OpenNow:
    """`requests` are the oldest of `count`, none where there are too many to look for them."""

    count: int
    pools: tuple[PoolUse, ...]
    requests: tuple[OpenRequest, ...]


def read_open(redis: Redis, tenant_id: str, service_class: str, pools: Collection[str]) -> OpenNow:
    """Return what a tenant has open, and of these pools what one more request would find. Raises
    `RedisError`."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.hlen(keys.tenant_reservations(tenant_id))
    for pool in pools:
        pipeline.hmget(keys.pool_flow(pool, service_class, tenant_id), ["running", "waiting"])
        pipeline.fcall_ro(functions.FORECAST, 1, keys.pool_prefix(pool), service_class, tenant_id)
    count, *answers = pipeline.execute()
    uses = {
        pool: _use(pool, numbers, forecast)
        for pool, numbers, forecast in zip(pools, answers[::2], answers[1::2], strict=True)
    }
    reserved = _reserved(redis, tenant_id) if 0 < count <= _MOST_READ else {}
    return OpenNow(count=count, pools=tuple(uses.values()), requests=_oldest(redis, reserved, uses))


def _use(pool: str, numbers: list[bytes | None], forecast: Any) -> PoolUse:
    position, wait_ms, *_ = forecast
    running, waiting = (int(float(number or 0)) for number in numbers)
    return PoolUse(
        pool=pool, running=running, waiting=waiting, position=position, wait_ms=known_wait(wait_ms)
    )


def _reserved(redis: Redis, tenant_id: str) -> dict[str, Reservation]:
    """Return the reservations by request, the oldest first."""
    found = cast("dict[bytes, bytes]", redis.hgetall(keys.tenant_reservations(tenant_id)))
    read = ((name.decode(), read_reservation(packed)) for name, packed in found.items())
    known = [(name, reservation) for name, reservation in read if reservation is not None]
    return dict(sorted(known, key=lambda each: (each[1].at_ms, each[0])))


def _oldest(
    redis: Redis, reserved: Mapping[str, Reservation], uses: Mapping[str, PoolUse]
) -> tuple[OpenRequest, ...]:
    """Return the oldest requests, those that wait before those that run. Each one's place is that
    among all of the tenant's that wait in its pool."""
    places = [
        (request_id, target.pool)
        for request_id, reservation in reserved.items()
        for target in reservation.request.targets
    ]
    pipeline = redis.pipeline(transaction=False)
    for request_id, pool in places:
        pipeline.hmget(keys.pool_request(pool, request_id), ["state", "attempt"])
    waiting = dict.fromkeys(uses, 0)
    found: list[OpenRequest] = []
    for (request_id, pool), (state, attempt) in zip(
        places, pipeline.execute() if places else [], strict=True
    ):
        if state not in (b"queued", b"running"):
            continue
        position = None
        if state == b"queued" and pool in uses:
            waiting[pool] += 1
            position = uses[pool].position_of(waiting[pool])
        reservation = reserved[request_id]
        found.append(
            OpenRequest(
                request_id=request_id,
                key_id=reservation.request.key_id,
                project_id=reservation.request.project_id,
                pool=pool,
                state=RequestState(state.decode()),
                at_ms=reservation.at_ms,
                attempt=int(attempt or 0),
                position=position,
            )
        )
    found.sort(key=lambda each: each.state is RequestState.RUNNING)
    return tuple(found[:REQUESTS_SHOWN])
