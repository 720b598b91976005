"""What a gateway does for its open requests when the dispatch Redis has lost everything.

Reservations are made again, whatever the limits say by now, before anybody is admitted anew: the
control plane waits for that (inference/operations/resync.py). What waited is queued again then.
What a worker held is left to it for a while: workers come back by themselves and adopt what they
hold. What nobody adopted is queued again, to go on where it was, as far as that is possible.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

import structlog
from msgspec import structs

from gpu_workers.protocol.messages import Envelope, UsageEntry
from inference.admission.gate import Admission
from inference.dispatch.queue import ATTEMPT_GAP, Assigned, Dispatch, RequestState
from inference.lifecycle.generation import Generation

_log = structlog.get_logger(__name__)

ADOPTION_SECONDS: Final = 2.0
# A gateway has no outbox: it keeps what it finished itself while the collector may be late.
KEPT_SECONDS: Final = 120.0
MOST_KEPT: Final = 20_000
# Budgets and snapshot come back together, from a control plane that looks every few seconds.
_SNAPSHOT_SECONDS: Final = 30.0
_SNAPSHOT_PAUSE_SECONDS: Final = 0.1
# It was in the queue already: there is no refusing it now.
_NO_CAP: Final = 1_000_000_000


class Owner(Protocol):
    """What is asked of the settlement whose requests these are."""

    @property
    def pools(self) -> list[str]: ...

    def open_in(self, pool: str) -> list[Generation]: ...

    def give_back(self, envelope: Envelope) -> None: ...

    async def lose(self, generation: Generation) -> None: ...

    def cancel_again(self, generation: Generation) -> None: ...


class Recovery:
    """Follows the epoch of each pool's Redis."""

    def __init__(self, owner: Owner, admission: Admission, dispatch: Dispatch) -> None:
        self._owner = owner
        self._admission = admission
        self._dispatch = dispatch
        self._epochs: dict[str, str] = {}
        self._under_way: set[str] = set()
        self._finished: deque[tuple[float, UsageEntry]] = deque(maxlen=MOST_KEPT)

    def remember(self, entry: UsageEntry) -> None:
        """This gateway has put it on record; should Redis be lost now, it is told again."""
        now = time.monotonic()
        self._finished.append((now, entry))
        while self._finished[0][0] < now - KEPT_SECONDS:
            self._finished.popleft()

    def is_under_way(self, pool: str) -> bool:
        return pool in self._under_way

    async def resync(self, gateway_id: str) -> None:
        """While there is no snapshot, once: whatever of this gateway has to be counted before the
        next request is admitted, by any gateway."""
        if self._admission.has_policy or await self._dispatch.has_resynced(gateway_id):
            return
        for pool in self._owner.pools:
            await self._resync(pool)
        await self._dispatch.note_resynced(gateway_id)

    async def is_due(self, pool: str) -> bool:
        """Whether Redis has lost the pool since this was last asked."""
        epoch = await self._dispatch.epoch(pool, secrets.token_hex(8))
        known = self._epochs.setdefault(pool, epoch)
        if epoch == known or pool in self._under_way:
            return False
        self._epochs[pool] = epoch
        self._under_way.add(pool)
        return True

    async def recover(self, pool: str) -> None:
        """All that was open goes on, or ends with a typed error. Where Redis is lost once more
        meanwhile, this is due again."""
        try:
            await self._recover(pool)
        except BaseException:
            self._epochs[pool] = ""
            raise
        finally:
            self._under_way.discard(pool)

    async def _recover(self, pool: str) -> None:
        await self._resync(pool)
        await self._wait_for_snapshot()
        held = self._owner.open_in(pool)
        waiting = [
            each for each in held if each.is_enqueued and not (each.is_running or each.is_cancelled)
        ]
        await self._enqueue_again(waiting)
        await asyncio.sleep(ADOPTION_SECONDS)
        left = await self._unknown_of(pool, held)
        to_go_on = [each for each in left if each.stream.can_resume and not each.is_cancelled]
        await self._enqueue_again(to_go_on)
        lost = [each for each in left if each not in to_go_on]
        for generation in lost:
            await self._owner.lose(generation)
        for generation in self._owner.open_in(pool):
            if generation.is_cancelled:
                self._owner.cancel_again(generation)
        _log.warning(
            "recovered_from_lost_redis",
            pool=pool,
            open=len(held),
            queued_again=len(waiting) + len(to_go_on),
            lost=len(lost),
        )

    async def _resync(self, pool: str) -> None:
        """What is open is reserved, what may not have been collected is on record; both may be so
        already. The collector knows what it has by its request id."""
        await self._reserve_again(self._owner.open_in(pool))
        for _, entry in list(self._finished):
            if entry.pool == pool:
                await self._dispatch.finish(entry, may_be_lost=True)

    async def _wait_for_snapshot(self) -> None:
        until = time.monotonic() + _SNAPSHOT_SECONDS
        while time.monotonic() < until:
            if await self._admission.is_policy_in_redis():
                return
            await asyncio.sleep(_SNAPSHOT_PAUSE_SECONDS)

    async def _reserve_again(self, held: list[Generation]) -> None:
        await asyncio.gather(
            *(
                self._admission.restore(
                    each.request_id, each.caller, each.envelope.pool, each.admitted
                )
                for each in held
            )
        )
        for generation in held:
            if not generation.is_open:  # it ended meanwhile
                self._owner.give_back(generation.envelope)

    async def _enqueue_again(self, generations: Iterable[Generation]) -> None:
        await asyncio.gather(*(self._enqueue_one(each) for each in generations))

    async def _enqueue_one(self, generation: Generation) -> None:
        """As an attempt that none before was: a frame of an earlier one, which may be on its way,
        is never taken for one of this. Nothing comes that this attempt is not told of."""
        stream, next_attempt = generation.stream, 0
        attempts = stream.attempt + ATTEMPT_GAP
        stream.hold()
        try:
            envelope = generation.resumption() or generation.envelope
            answer = await self._dispatch.enqueue(
                structs.replace(envelope, on_saturation="wait"),
                max_queue_length=_NO_CAP,
                attempts=attempts,
            )
            # What waits, or is known, may have been adopted as the attempt that it was.
            if isinstance(answer, Assigned):
                next_attempt = attempts + 1
        finally:
            stream.release(next_attempt)

    async def _unknown_of(self, pool: str, held: list[Generation]) -> list[Generation]:
        """Those that are still open here and that the pool knows nothing of."""
        asked = [each for each in held if each.is_open and each.is_enqueued]
        if not asked:
            return []
        states = await self._dispatch.states(pool, [each.request_id for each in asked])
        return [each for each in asked if states[each.request_id] is RequestState.UNKNOWN]
