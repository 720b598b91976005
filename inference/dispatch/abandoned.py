"""Requests that dead gateways left behind: the sweeper ends them, so that nobody waits for them."""

from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.clock import read_clock
from gpu_workers.protocol.redis_errors import is_transient
from inference.dispatch.queue import REAP_LIMIT, Dispatch, Stranded
from inference.lua_constants import GATEWAY_LEASE_MS
from inference.pools import alone, read_known_pools

_log = structlog.get_logger(__name__)

_NO_KEY: Final = -2  # PTTL's answer
# No heartbeat is given as long, unless the clock was set back.
_LONGEST_HEARTBEAT_MS: Final = 60_000


async def end_abandoned(redis: Redis, *, page: int = REAP_LIMIT) -> int:
    """End what gateways that are gone have waiting, and what dead workers hold of theirs; return
    how many requests. A gateway without a heartbeat is gone at the second look, some seconds
    later."""
    dispatch = Dispatch(redis)
    await read_clock(redis)
    ended = 0
    for pool in await read_known_pools(redis):
        with alone(pool):
            for gateway_id in await _without_heartbeat(redis, await dispatch.gateways(pool)):
                ended += await _end_all_of(dispatch, pool, gateway_id, page)
    return ended


async def _without_heartbeat(redis: Redis, gateway_ids: list[str]) -> list[str]:
    """Return the gateways whose heartbeat has ended. One that would last longer than any does is
    from before the clock was set back: it is given the time that a heartbeat has."""
    pipeline = redis.pipeline(transaction=False)
    for gateway_id in gateway_ids:
        pipeline.pttl(keys.gateway_heartbeat(gateway_id))
    left_ms = dict(zip(gateway_ids, await pipeline.execute(), strict=True))
    for gateway_id, milliseconds in left_ms.items():
        if milliseconds > _LONGEST_HEARTBEAT_MS:
            pipeline.pexpire(keys.gateway_heartbeat(gateway_id), GATEWAY_LEASE_MS)
    await pipeline.execute()
    return [each for each, milliseconds in left_ms.items() if milliseconds == _NO_KEY]


async def _end_all_of(dispatch: Dispatch, pool: str, gateway_id: str, page: int) -> int:
    total = 0
    while True:
        found = await dispatch.reap_gone(pool, gateway_id, limit=page)
        ended = sum([await _end(dispatch, pool, stranded) for stranded in found])
        total += ended
        if len(found) < page or not ended:
            return total


async def _end(dispatch: Dispatch, pool: str, stranded: Stranded) -> bool:
    """End one, if nobody else has. One that cannot be ended keeps no other from it."""
    try:
        is_ended = await dispatch.end_unread(stranded, queued_code="gateway_lost")
    except (ResponseError, codec.WireFormatError) as error:
        if is_transient(error):
            raise
        _log.error("abandoned_request_not_ended", request_id=stranded.request_id, error=str(error))
        return False
    if is_ended:
        _log.info("abandoned_request_ended", request_id=stranded.request_id, pool=pool)
    return is_ended
