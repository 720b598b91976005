"""What a caller is told when a request cannot have its first token in time.

It is queued all the same, refused, or answered by the project's smaller model: the project's choice
(`OnSaturation`). Whoever gets something else than was promised is told so, with the expected wait.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.messages import LimitDetail
from gpu_workers.protocol.policy import Caller
from inference.admission.limits import LONGEST_RETRY_MS, REFUSED, Headers, LimitScope
from inference.dispatch.queue import Enqueued, Queued, QueueFull, Saturated
from inference.errors import InferenceError, LimitReached, Unavailable

NOT_TAKEN: Final = (QueueFull, Saturated)

_LIMIT: Final = "ttft_target_ms"
# Of a full queue that nobody can tell the speed of.
_UNKNOWN_RETRY_SECONDS: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """What differs from what the caller asked for or was promised. `relaxed_wait_ms` is the
    expected wait of a request that waits longer than its tier's TTFT target, `instead_of` the model
    that it named, where a smaller one answers."""

    relaxed_wait_ms: int | None = None
    instead_of: str | None = None

    @property
    def headers(self) -> Headers:
        headers: Headers = ()
        if self.relaxed_wait_ms is not None:
            headers += (
                ("x-penstock-queue", "relaxed"),
                ("x-penstock-expected-wait-ms", str(self.relaxed_wait_ms)),
            )
        if self.instead_of is not None:
            headers += (("x-penstock-model-instead-of", self.instead_of),)
        return headers


def notice_of(answer: Enqueued, *, instead_of: str | None = None) -> Notice:
    """Return the notice of a request that was accepted."""
    if isinstance(answer, Queued) and answer.is_relaxed:
        return Notice(relaxed_wait_ms=answer.wait_ms, instead_of=instead_of)
    return Notice(instead_of=instead_of)


def refusal(
    caller: Caller, model: str, answer: QueueFull | Saturated, *, because: str = ""
) -> InferenceError:
    """Return the error of a request that was not taken. `because`: why no smaller model answers
    it."""
    because = f" {because}" if because else ""
    if isinstance(answer, Saturated):
        return _saturated(caller, model, answer.wait_ms, because)
    seconds = _UNKNOWN_RETRY_SECONDS
    if answer.wait_ms is not None:
        seconds = max(1, math.ceil(answer.wait_ms / 1000))
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


def _seconds(ms: int) -> str:
    return f"{math.ceil(ms / 100) / 10:g} s"
