"""Which gateway processes live, by what they say of themselves in Redis."""

from typing import cast

from redis import Redis

from gpu_workers.protocol import keys


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
        redis.srem(keys.known_gateways(), *dead)
    return sorted(live)
