"""Reservations beside the state machine of dispatch: one a request, until its end."""

from typing import cast

import msgspec
from redis import Redis

from gpu_workers.protocol import functions, keys
from inference.lua_constants import Owner, UseKind
from inference.redis_functions import ADMISSION, library_text
from tests.support.dispatch.virtual_pool import Ask

SEQUENCES_AT_ONCE = 60


class Reserving:
    """Holds a tenant to SEQUENCES_AT_ONCE through the real functions, and counts for itself."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self.open: dict[str, dict[str, int]] = {}
        redis.function_load(library_text(ADMISSION), replace=True)

    def reserve(self, ask: Ask, now_ms: int) -> bool:
        mine = self.open.setdefault(ask.tenant, {})
        is_admitted = self._reserve(ask, now_ms, is_hard=True)
        assert is_admitted == (sum(mine.values()) + ask.sequences <= SEQUENCES_AT_ONCE)
        if is_admitted:
            mine[ask.request_id] = ask.sequences
        return is_admitted

    def reserve_again(self, asks: list[Ask], now_ms: int) -> None:
        """What gateways hold open, in a Redis that lost it; nothing of it can be refused."""
        self.open = {}
        for ask in asks:
            assert self._reserve(ask, now_ms, is_hard=False)
            self.open.setdefault(ask.tenant, {})[ask.request_id] = ask.sequences

    def settle(self, ask: Ask, output: int) -> None:
        was_open = ask.request_id in self.open[ask.tenant]
        prefix = keys.tenant_prefix(ask.tenant)
        call = (functions.SETTLE, 1, prefix, ask.request_id, output, output)
        assert self._redis.fcall(*call) == was_open
        self.open[ask.tenant].pop(ask.request_id, None)

    def check(self) -> None:
        """Redis counts as we do."""
        for tenant, mine in self.open.items():
            counted = cast(bytes | None, self._redis.hget(keys.tenant_open(tenant), "tenant"))
            assert int(counted or 0) == sum(mine.values())
            assert self._redis.hlen(keys.tenant_reservations(tenant)) == len(mine)

    def _reserve(self, ask: Ask, now_ms: int, *, is_hard: bool) -> bool:
        tokens = ask.prompt + ask.output
        claim = msgspec.msgpack.encode([ask.key, ask.project, tokens, tokens, "virtual", []])
        limits = msgspec.msgpack.encode(
            [UseKind.OPEN + Owner.TENANT, SEQUENCES_AT_ONCE, int(is_hard)]
        )
        prefix = keys.tenant_prefix(ask.tenant)
        given = (ask.request_id, ask.key, ask.project, tokens, tokens, claim, limits, ask.sequences)
        call = (functions.RESERVE, 1, prefix, *given, now_ms)
        _, refusing, _, used = self._redis.fcall(*call)
        assert used <= SEQUENCES_AT_ONCE
        return bool(refusing == 0)
