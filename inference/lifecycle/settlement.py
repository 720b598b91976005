"""The end of every admitted request, settled whether or not its client is still there.

Workers end what they ran. What is left is ended here: cancelled or expired in the queue, held by a
dead worker, or ended without the end having arrived. Each end settles the reservation to what was
really used. What a caller has open ends too when its key or its tenant may not go on.
"""

import asyncio
import time
from typing import Final

import structlog
from prometheus_client import Counter
from redis.exceptions import RedisError

from gpu_workers.protocol.messages import Envelope, Outcome, Requeued, RetryReason, Terminal
from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admission, Admitted
from inference.admission.reservations import Correction
from inference.background import Background
from inference.charges import NOTHING, Bounds, Charge
from inference.dispatch.queue import Dispatch, RequestState, Stranded
from inference.errors import REDIS_ERRORS, InferenceError
from inference.lifecycle.candidates import Candidate
from inference.lifecycle.generation import Generation
from inference.lifecycle.recovery import Recovery
from inference.lifecycle.terminals import (
    cancelled,
    end_of,
    entry_of,
    exhausted,
    missed_end_of,
    not_taken,
    worker_lost,
)
from inference.streaming.frame_hub import FrameHub
from inference.streaming.token_stream import frames_lost

_log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 0.5
# How often it is asked whether a caller may go on with what it has open.
ACCESS_SECONDS: Final = 0.5
# True-downs gather for so long; a request that has ended by then needs none.
TRUE_DOWN_SECONDS: Final = 0.2
SILENCE_SECONDS: Final = 15.0
# A running request without a frame for so long is asked after: its last frames may be lost.
_IDLE_SECONDS: Final = 3.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 10.0

ENDED = Counter("penstock_gateway_ended_total", "Admitted requests by how they ended.", ["outcome"])
CANCELLATIONS = Counter(
    "penstock_gateway_cancellations_total", "Requests whose client left, or asked for their end."
)


class Settlement:
    """The open requests of one process, until each has ended and its reservation is settled."""

    def __init__(self, admission: Admission, dispatch: Dispatch, hub: FrameHub) -> None:
        self.hub = hub
        self._admission = admission
        self._dispatch = dispatch
        self._background = Background()
        self._open: dict[str, Generation] = {}
        self._pools: set[str] = set()
        self._to_settle: asyncio.Queue[Correction] = asyncio.Queue()
        self._to_true_down: dict[str, Generation] = {}
        self._all_ended = asyncio.Event()
        self._recovery = Recovery(self, admission, dispatch)

    def start(self) -> None:
        self._background.supervise(self._watch, name="stranded-requests")
        self._background.supervise(self._settle, name="reservations")
        self._background.supervise(self._true_down, name="true-downs")
        self._background.supervise(self._watch_access, name="access")

    async def stop(self, *, drain_seconds: float) -> None:
        """Cancels what is still open and waits for its end, but no longer than the drain time."""
        for generation in list(self._open.values()):
            self.cancel(generation)
        try:
            async with asyncio.timeout(drain_seconds):
                while self._open:
                    self._all_ended.clear()
                    await self._all_ended.wait()
                await self._to_settle.join()
        except TimeoutError:
            _log.warning("gateway_stops_with_open_requests", requests=len(self._open))
        await self._background.stop()

    def open(
        self, envelope: Envelope, caller: Caller, admitted: Admitted, bounds: Bounds
    ) -> Generation:
        """A request that has been admitted and is about to be enqueued."""
        generation = Generation(self, envelope, caller, admitted, bounds)
        self._open[envelope.request_id] = generation
        self._pools.add(envelope.pool)
        return generation

    def move(self, generation: Generation, candidate: Candidate) -> None:
        """The pool did not take it; another one is about to be asked."""
        generation.move_to(candidate)
        self._pools.add(candidate.envelope.pool)

    def cancel(self, generation: Generation) -> None:
        # What is still on its way into the queue would be unknown to the pool, and run for nobody.
        if not generation.is_enqueued or generation.is_cancelled:
            return
        if generation.request_id not in self._open:
            return
        generation.is_cancelled = True
        CANCELLATIONS.inc()
        self._background.spawn(self._cancel(generation), name="cancel")

    def settle(self, generation: Generation, terminal: Terminal) -> None:
        """The end has come, from the worker or from `_end_here`."""
        ENDED.labels(terminal.outcome.value).inc()
        self._close(generation, generation.charge_of(terminal))

    def forget(self, generation: Generation) -> None:
        """Lets go of a request that the queue did not take."""
        self._close(generation, NOTHING)

    def give_back(self, envelope: Envelope) -> None:
        """Releases what a request that was not run has reserved, soon; there may be nothing."""
        self._settle_to(envelope, NOTHING)

    def true_down(self, generation: Generation) -> None:
        """The worker has counted the prompt: less than the worst case is needed, soon."""
        self._to_true_down[generation.request_id] = generation

    def replace_worker(self, generation: Generation) -> None:
        """Its worker has not what is missing of its output: another attempt makes it again."""
        self._background.spawn(self._make_again(generation), name="make-again")

    async def _make_again(self, generation: Generation) -> None:
        try:
            # A pool that Redis has lost knows nothing of any attempt until it is back.
            if not self._recovery.is_under_way(generation.envelope.pool):
                await self._replace_worker(generation, generation.stream.attempt, "frames_lost")
        finally:
            generation.stream.release()  # what is left of it: the gap is asked for once more

    def _close(self, generation: Generation, charge: Charge) -> None:
        if self._open.pop(generation.request_id, None) is None:
            return
        generation.is_open = False
        self.hub.close(generation.request_id)
        self._to_true_down.pop(generation.request_id, None)
        self._settle_to(generation.envelope, charge)
        if not self._open:
            self._all_ended.set()

    def _settle_to(self, envelope: Envelope, charge: Charge) -> None:
        self._to_settle.put_nowait(
            Correction(tenant_id=envelope.tenant_id, request_id=envelope.request_id, charge=charge)
        )

    # ends that no worker makes ------------------------------------------------------------------

    async def _cancel(self, generation: Generation) -> None:
        """Until the pool has heard it. A running request's end then comes from its worker."""
        envelope, pause = generation.envelope, _FIRST_PAUSE_SECONDS
        while envelope.request_id in self._open:
            try:
                state = await self._dispatch.cancel(envelope.pool, envelope.request_id)
                if state is RequestState.QUEUED:
                    await self._end_here(generation, 0, Outcome.CANCELLED, cancelled())
                elif state is RequestState.UNKNOWN:
                    await self.lose(generation)
                return
            except (RedisError, OSError):
                REDIS_ERRORS.inc()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _watch(self) -> None:
        """Ends this gateway's requests that nobody else will: past their deadline in the queue,
        held by a dead worker, or ended without the end having arrived here."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._recovery.resync(self.hub.gateway_id)
            for pool in self.pools:
                if await self._recovery.is_due(pool):
                    self._background.spawn(self._recovery.recover(pool), name="recovery")
                if self._recovery.is_under_way(pool):
                    continue
                for stranded in await self._dispatch.reap(
                    pool, grace_ms=0, gateway_id=self.hub.gateway_id
                ):
                    await self._end_stranded(stranded)
                await self._ask_after_idle(pool)
            self._look_after_readers()

    async def _end_stranded(self, stranded: Stranded) -> None:
        generation = self._open.get(stranded.request_id)
        if generation is None:
            # It reached the queue after this gateway had given it up.
            await self._dispatch.end_unread(stranded)
        elif stranded.state is RequestState.RUNNING:
            await self._replace_worker(generation, stranded.attempt)
        elif generation.stream.completion_tokens:
            await self._end_here(generation, 0, Outcome.FAILED, worker_lost())
        else:
            await self._end_here(generation, 0, Outcome.EXPIRED, not_taken(generation))

    async def _replace_worker(
        self, generation: Generation, attempt: int, reason: RetryReason = "worker_lost"
    ) -> None:
        """Lets another attempt go on where this one cannot, if its reader need not notice."""
        stream, envelope = generation.stream, generation.envelope
        if generation.is_cancelled:
            await self._end_here(generation, attempt, Outcome.CANCELLED, cancelled())
            return
        if not stream.can_resume:
            await self._end_here(generation, attempt, Outcome.FAILED, worker_lost())
            return
        stream.hold()  # from here on nothing may come that the next worker is not told of
        answer, next_attempt = None, 0
        try:
            answer = await self._dispatch.requeue(
                envelope.pool,
                envelope.request_id,
                attempt,
                generation.resumption(),
                reason=reason,
            )
            if answer is Requeued.REQUEUED:
                next_attempt = attempt + 1
                _log.info(
                    "attempt_replaced",
                    request_id=envelope.request_id,
                    attempt=attempt,
                    reason=reason,
                )
        finally:
            stream.release(next_attempt)
        if answer is Requeued.STALE and reason == "frames_lost":
            states = await self._dispatch.states(envelope.pool, [envelope.request_id])
            # What a lost Redis does not know is recovery's: its worker may adopt it yet.
            if states[envelope.request_id] is not RequestState.UNKNOWN:
                stream.break_off(frames_lost())
        if answer is Requeued.EXHAUSTED:
            await self._end_here(
                generation, attempt, Outcome.FAILED, exhausted(), is_dead_letter=True
            )

    async def _end_here(
        self,
        generation: Generation,
        attempt: int,
        outcome: Outcome,
        error: InferenceError,
        *,
        is_dead_letter: bool = False,
    ) -> None:
        """Finishes a request in its worker's place, if it is still ours to finish."""
        envelope, resumed = generation.envelope, 0
        if envelope.is_resumable:
            resumed = await self._dispatch.resumed_of(envelope.pool, envelope.request_id)
        entry = entry_of(generation, attempt, outcome, error, resumed=resumed)
        if await self._dispatch.finish(entry, is_dead_letter=is_dead_letter):
            self._recovery.remember(entry)
            generation.stream.end(end_of(generation, outcome, error))

    async def _ask_after_idle(self, pool: str) -> None:
        oldest = time.monotonic() - _IDLE_SECONDS
        idle = {
            generation.request_id: generation
            for generation in self._open.values()
            if generation.envelope.pool == pool
            and generation.is_enqueued
            and generation.stream.last_frame_at < oldest
        }
        if not idle:
            return
        for request_id, state in (await self._dispatch.states(pool, list(idle))).items():
            generation = idle[request_id]
            if state in (RequestState.QUEUED, RequestState.RUNNING):
                generation.times_missing = 0
                continue
            generation.times_missing += 1
            if generation.times_missing == 1:
                await self._ask_for_end(generation)
            else:
                _log.warning("end_did_not_arrive", request_id=request_id, state=state.value)
                await self._end_as_recorded(generation)

    async def _end_as_recorded(self, generation: Generation) -> None:
        """Its reader misses the end, but pays what the record says."""
        envelope = generation.envelope
        record = await self._dispatch.record_of(envelope.pool, envelope.request_id)
        if record is None:
            await self.lose(generation)
        else:
            generation.stream.end(missed_end_of(generation, record))

    async def _ask_for_end(self, generation: Generation) -> None:
        """Its last frames may be lost: the worker that sent them still has them for a while."""
        envelope, stream = generation.envelope, generation.stream
        worker_id = stream.worker_id or await self._dispatch.worker_of(
            envelope.pool, envelope.request_id
        )
        if worker_id is not None:
            await self.hub.request_resend(envelope.pool, worker_id, stream)

    # lost Redis ---------------------------------------------------------------------------------

    @property
    def pools(self) -> list[str]:
        """Every one that a request of this gateway has gone to."""
        return list(self._pools)

    def open_in(self, pool: str) -> list[Generation]:
        """This gateway's open requests of a pool."""
        return [each for each in self._open.values() if each.envelope.pool == pool]

    async def lose(self, generation: Generation) -> None:
        """Ends a request that Redis has lost and that cannot go on, on record all the same."""
        outcome = Outcome.CANCELLED if generation.is_cancelled else Outcome.FAILED
        error = cancelled() if generation.is_cancelled else worker_lost()
        attempt = generation.stream.attempt
        entry = entry_of(generation, attempt, outcome, error)
        # Somebody may have ended it, or taken it up, in the meantime.
        if await self._dispatch.finish(entry, may_be_lost=True):
            self._recovery.remember(entry)
            generation.stream.end(end_of(generation, outcome, error))

    def cancel_again(self, generation: Generation) -> None:
        """Redis has lost that this request is to end."""
        self._background.spawn(self._cancel(generation), name="cancel")

    def _look_after_readers(self) -> None:
        """Cancels what cannot be given whole any more; lets silent streams give a sign of life."""
        now = time.monotonic()
        for generation in list(self._open.values()):
            if generation.stream.is_broken:
                self.cancel(generation)
            last = max(generation.stream.last_frame_at, generation.pinged_at)
            if now - last >= SILENCE_SECONDS:
                generation.pinged_at = now
                generation.stream.note_silence()

    # access -------------------------------------------------------------------------------------

    async def _watch_access(self) -> None:
        """Ends what belongs to a key or a tenant that may not go on: revoked, expired, suspended.
        One question for each caller, not for each request."""
        while True:
            await asyncio.sleep(ACCESS_SECONDS)
            callers = {id(each.caller): each.caller for each in self._open.values()}
            refusals = {
                each: error
                for each, caller in callers.items()
                if (error := await self._admission.refusal_of(caller)) is not None
            }
            if not refusals:
                continue
            for generation in list(self._open.values()):
                error = refusals.get(id(generation.caller))
                if error is not None and not generation.is_cancelled:
                    generation.refuse(error)

    # reservations -------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Settles reservations, all that have gathered in one round trip. They stay as they are
        while a lost Redis is told what tenants have used: what was settled into that would be taken
        for a part of it."""
        while True:
            batch = [await self._to_settle.get()]
            while not self._to_settle.empty():
                batch.append(self._to_settle.get_nowait())
            try:
                await self._admission.wait_for_policy()
                await self._admission.settle(batch)
            except BaseException:
                for correction in batch:
                    self._to_settle.put_nowait(correction)
                raise
            finally:
                for _ in batch:
                    self._to_settle.task_done()

    async def _true_down(self) -> None:
        """What is lost here is only made up for at the end of the request."""
        while True:
            await asyncio.sleep(TRUE_DOWN_SECONDS)
            counted, self._to_true_down = self._to_true_down, {}
            if counted:
                await self._admission.true_down(
                    Correction(
                        tenant_id=each.envelope.tenant_id,
                        request_id=each.request_id,
                        charge=each.trued_down(),
                    )
                    for each in counted.values()
                )
