"""What a caller is told when a request cannot have its first token in time, or no room to wait.

It is queued all the same, refused, or answered by the project's smaller model: the project's choice
(`OnSaturation`). Whoever gets something else than was promised is told so, with the expected wait.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.messages import LimitDetail
from gpu_workers.protocol.policy import Caller
from inference.admission.limits import LONGEST_RETRY_MS, REFUSED, Headers, LimitScope
from inference.dispatch.answers import (
    Enqueued,
    LoadsFull,
    MemoryFull,
    NotTaken,
    Queued,
    QueueFull,
    Saturated,
    ShareFull,
    UsageFull,
)
from inference.errors import InferenceError, LimitReached, Unavailable

NOT_TAKEN: Final = (QueueFull, Saturated, MemoryFull, ShareFull, UsageFull, LoadsFull)

_LIMIT: Final = "ttft_target_ms"
_BYTES_LIMIT: Final = "queue_bytes"
_LOADS_LIMIT: Final = "adapter_load_ms_per_minute"
# Of a full queue that nobody can tell the speed of.
_UNKNOWN_RETRY_SECONDS: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """What differs from what the caller asked for or was promised. `relaxed_wait_ms` is the
    expected wait of a request that waits longer than its tier's TTFT target, `instead_of` the model
    that it named, where a smaller one answers; `waits_for_worker`: none is ready yet."""

    relaxed_wait_ms: int | None = None
    instead_of: str | None = None
    waits_for_worker: bool = False

    @property
    def headers(self) -> Headers:
        headers: Headers = ()
        if self.relaxed_wait_ms is not None:
            headers += (
                ("x-penstock-queue", "relaxed"),
                ("x-penstock-expected-wait-ms", str(self.relaxed_wait_ms)),
            )
        elif self.waits_for_worker:
            headers += (("x-penstock-queue", "starting"),)
        if self.instead_of is not None:
            headers += (("x-penstock-model-instead-of", self.instead_of),)
        return headers


def notice_of(
    answer: Enqueued, *, instead_of: str | None = None, has_worker: bool = True
) -> Notice:
    """Return the notice of a request that was accepted. `has_worker`: one was ready before."""
    if isinstance(answer, Queued) and not has_worker and not answer.is_relaxed:
        return Notice(waits_for_worker=True, instead_of=instead_of)
    if isinstance(answer, Queued) and answer.is_relaxed:
        return Notice(relaxed_wait_ms=answer.wait_ms, instead_of=instead_of)
    return Notice(instead_of=instead_of)


def refusal(caller: Caller, model: str, answer: NotTaken, *, because: str = "") -> InferenceError:
    """Return the error of a request that was not taken. `because`: why no smaller model answers
    it."""
    because = f" {because}" if because else ""
    if isinstance(answer, Saturated):
        return _saturated(caller, model, answer.wait_ms, because)
    if isinstance(answer, ShareFull):
        return _share_full(model, answer, because)
    if isinstance(answer, LoadsFull):
        return _loads_full(caller, model, answer, because)
    if isinstance(answer, UsageFull):
        return Unavailable(
            f"More requests to {model} have ended than could be put on record yet.{because} "
            f"Try again in {_UNKNOWN_RETRY_SECONDS} s.",
            code="usage_backlog",
            retry_after_seconds=_UNKNOWN_RETRY_SECONDS,
        )
    seconds = _UNKNOWN_RETRY_SECONDS
    if answer.wait_ms is not None:
        seconds = max(1, math.ceil(answer.wait_ms / 1000))
    if isinstance(answer, MemoryFull):
        return Unavailable(
            f"The requests that {model} holds fill the memory set aside for them: "
            f"{answer.payload_bytes} bytes.{because} Try again in {seconds} s.",
            code="queue_memory_full",
            retry_after_seconds=seconds,
        )
    return Unavailable(
        f"The queue of {model} is full: {answer.length} requests wait.{because} "
        f"Try again in {seconds} s.",
        code="queue_full",
        retry_after_seconds=seconds,
    )


def _saturated(caller: Caller, model: str, wait_ms: int, because: str) -> LimitReached:
    tier = caller.tier
    retry_ms = max(1, wait_ms - tier.ttft_target_ms)
    seconds = math.ceil(retry_ms / 1000)
    REFUSED.labels(_LIMIT, LimitScope.TIER.value).inc()
    return LimitReached(
        f"{model} is saturated: a worker is expected to be free in {_seconds(wait_ms)}, the first "
        f"token is promised within {_seconds(tier.ttft_target_ms)} (tier {tier.name}), and the "
        f"project {caller.key.project_name or caller.key.project_id} does not wait for longer."
        f"{because} Try again in {seconds} s.",
        code="saturated",
        retry_after_seconds=seconds,
        retry_after_ms=retry_ms,
        should_retry=False if retry_ms > LONGEST_RETRY_MS else None,
        limit=LimitDetail(
            limit=_LIMIT,
            scope=LimitScope.TIER.value,
            used=wait_ms,
            limit_value=tier.ttft_target_ms,
            reset_seconds=seconds,
        ),
    )


def _share_full(model: str, answer: ShareFull, because: str) -> LimitReached:
    seconds = _UNKNOWN_RETRY_SECONDS
    REFUSED.labels(_BYTES_LIMIT, LimitScope.TENANT.value).inc()
    return LimitReached(
        f"Your requests that {model} holds come to {answer.payload_bytes} bytes; one tenant may "
        f"have {answer.max_payload_bytes} there, waiting and running together.{because} Send this "
        f"one when others have ended, or in {seconds} s.",
        code="queue_memory_share_full",
        retry_after_seconds=seconds,
        limit=LimitDetail(
            limit=_BYTES_LIMIT,
            scope=LimitScope.TENANT.value,
            used=answer.payload_bytes,
            limit_value=answer.max_payload_bytes,
            reset_seconds=seconds,
        ),
    )


def _loads_full(caller: Caller, model: str, answer: LoadsFull, because: str) -> LimitReached:
    seconds = math.ceil(answer.wait_ms / 1000)
    REFUSED.labels(_LOADS_LIMIT, LimitScope.TIER.value).inc()
    return LimitReached(
        f"No worker has {model} in memory, and loading adapters for your organisation has held "
        f"engines up for {_seconds(answer.used_ms)} of the {_seconds(answer.max_ms)} that tier "
        f"{caller.tier.name} allows in a minute.{because} Adapters that are loaded go on to "
        f"answer; try this one again in {seconds} s.",
        code="adapter_load_limit_reached",
        retry_after_seconds=seconds,
        retry_after_ms=answer.wait_ms,
        limit=LimitDetail(
            limit=_LOADS_LIMIT,
            scope=LimitScope.TIER.value,
            used=answer.used_ms,
            limit_value=answer.max_ms,
            reset_seconds=seconds,
        ),
    )


def _seconds(ms: int) -> str:
    return f"{math.ceil(ms / 100) / 10:g} s"
