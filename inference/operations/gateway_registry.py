"""Which gateway processes live, by what they say of themselves in Redis; and what the dead leave
unread, which workers may not expire."""

from collections.abc import Iterable
from typing import Final, cast

from redis import Redis

from gpu_workers.protocol import keys
from inference.pools import known_pools
from inference.streaming.frame_hub import UNREAD_TTL_SECONDS

_SCANNED_AT_A_TIME: Final = 1000


def live_gateways(redis: Redis) -> list[str] | None:
    """Return the ids of live gateways and forget those whose heartbeat has ended. None: Redis has
    lost everything, and not all of them may have found it again."""
    known = sorted(
        each.decode() for each in cast(set[bytes], redis.smembers(keys.known_gateways()))
    )
    with redis.pipeline(transaction=False) as pipeline:
        for gateway_id in known:
            pipeline.exists(keys.gateway_heartbeat(gateway_id))
        pipeline.exists(keys.policy_version())
        *has_beaten, has_policy = pipeline.execute()
    if not has_policy:
        return None
    live = {gateway_id for gateway_id, beats in zip(known, has_beaten, strict=True) if beats}
    if dead := set(known) - live:
        pools = known_pools(redis)
        _expire(redis, (keys.gateway_frames(each, pool) for each in dead for pool in pools))
        redis.srem(keys.known_gateways(), *dead)
    return sorted(live)


def expire_unread_frames(redis: Redis) -> int:
    """Expire the frames of gateways that live no more, also of those that nobody knows any more:
    what a worker wrote that was paused for long. Return how many lists there were. Looks at every
    key, `_SCANNED_AT_A_TIME` at once."""
    lists: list[bytes] = list(
        redis.scan_iter(match=keys.gateway_frames("*", "*"), count=_SCANNED_AT_A_TIME, _type="list")
    )
    with redis.pipeline(transaction=False) as pipeline:
        for each in lists:
            pipeline.exists(keys.gateway_heartbeat(_gateway_of(each.decode(errors="replace"))))
        has_beaten = pipeline.execute()
    orphans = [each for each, beats in zip(lists, has_beaten, strict=True) if not beats]
    _expire(redis, orphans)
    return len(orphans)


def _expire(redis: Redis, lists: Iterable[str | bytes]) -> None:
    """Give each list an end, unless it has one. A gateway that lives after all loses nothing: a
    list that it empties is gone, and its end with it."""
    with redis.pipeline(transaction=False) as pipeline:
        for each in lists:
            pipeline.expire(each, UNREAD_TTL_SECONDS, nx=True)
        pipeline.execute()


def _gateway_of(list_name: str) -> str:
    before, after = keys.gateway_frames("*", "").split("*")
    return list_name.removeprefix(before).partition(after)[0]
