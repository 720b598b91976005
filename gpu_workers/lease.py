"""A worker's place in its pool: taken by name, renewed by every call and by its heartbeat, and
taken again where Redis has lost the worker."""

import asyncio
import time
from typing import Final

import structlog
from msgspec import structs

from gpu_workers.adapters.worker_adapters import WorkerAdapters
from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.engine import Engine, EngineDescription, EngineLoad
from gpu_workers.figures.engine_watch import EngineWatch
from gpu_workers.figures.gpu_watch import GpuWatch
from gpu_workers.heartbeat import Heartbeat
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.outbox.relay import OutboxRelay
from gpu_workers.protocol.messages import InboxMessage, WorkerInfo, WorkerState
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.requests.open_requests import OpenRequests
from gpu_workers.requests.step_time import StepTime
from gpu_workers.transport import Transport, UnknownWorker

CLAIM_EVERY_SECONDS: Final = 1.0
REPORT_PROGRESS_EVERY_SECONDS: Final = 0.2

_log = structlog.get_logger("gpu_workers.lease")


class Lease:
    """What a worker reports of itself, and the calls that report it. Calls that an unreachable
    Redis missed are repeated with the next heartbeat. All of them raise `Fenced` once another
    process has taken the worker's name."""

    def __init__(
        self,
        info: WorkerInfo,
        *,
        transport: Transport,
        heartbeat: Heartbeat,
        engine: Engine,
        requests: OpenRequests,
        adapters: WorkerAdapters,
        outbox: Outbox,
        relay: OutboxRelay,
        metrics: WorkerMetrics,
        gpus: GpuWatch,
    ) -> None:
        self._base_info = info
        self._transport = transport
        self._heartbeat = heartbeat
        self._engine = engine
        self._requests = requests
        self._adapters = adapters
        self._outbox = outbox
        self._relay = relay
        self._metrics = metrics
        self._gpus = gpus
        self._watch = EngineWatch(engine.stats, adapters.counts)
        self._problem = ""
        self._is_held = False
        self._reregistration: asyncio.Task[None] | None = None
        self._claiming = asyncio.Lock()  # one that overtook another would say what was before it
        self._log = _log.bind(worker_id=info.worker_id, pool=info.pool)

    @property
    def state(self) -> WorkerState:
        return self._base_info.state

    @property
    def slots(self) -> int:
        """Return how many sequences the worker decodes at once; 0 until its engine has started."""
        return self._base_info.slots

    def describe(self, engine: EngineDescription, *, max_slots: int | None) -> None:
        """Take over what the started engine reports of itself; `max_slots` caps its slots."""
        self._base_info = structs.replace(
            self._base_info,
            engine=engine.engine,
            engine_version=engine.version,
            slots=min(max_slots or engine.slots, engine.slots),
            context_tokens=engine.context_tokens,
            kv_cache_tokens=engine.kv_cache_tokens,
            template_overhead_tokens=engine.template_overhead_tokens,
            max_token_bytes=engine.max_token_bytes,
            can_resume=engine.can_resume,
            degraded=list(engine.degraded),
            adapter_slots=engine.adapter_slots,
        )

    async def identify(self, model_digest: str) -> None:
        """Register again with the digest of a model that was not on this disk before. Raises
        `WrongModel` if the pool serves another."""
        if model_digest and not self._base_info.model_digest:
            self._base_info = structs.replace(self._base_info, model_digest=model_digest)
            await self.register()

    def enter(self, state: WorkerState, *, problem: str = "") -> None:
        """Change the state that the next call reports, and why it is so where nobody asked. Who
        leaves is held no more."""
        self._base_info = structs.replace(self._base_info, state=state)
        self._problem = problem
        self._is_held = self._is_held and state is WorkerState.READY

    async def hold(self, is_held: bool) -> None:
        """Take no requests, or take them again; the engine goes on. Raises as `claim` does."""
        self._log.info("held" if is_held else "resumed", open_requests=len(self._requests))
        self._is_held = is_held
        await self.claim()

    async def register(self) -> None:
        """Take the worker's name, fencing whoever had it. Raises `NotPermitted` if the Redis user
        may not serve the pool, and `WrongModel` if the pool serves something else."""
        fenced = await self._transport.register(self._base_info)
        self._heartbeat.publish(self._base_info)
        self._log.info("registered", fenced=fenced)

    async def claim_forever(self) -> None:
        while True:
            await self.claim()
            await asyncio.sleep(CLAIM_EVERY_SECONDS)

    async def claim(self) -> None:
        """Renew the lease and run the requests that the queue assigns. Raises `Fenced` if another
        process has taken the worker's name."""
        async with self._claiming:
            taken = await self._claim()
        for message in taken:
            self._requests.take(message)

    async def report_progress_forever(self) -> None:
        """Report actual token counts in place of the scheduler's estimates, while any request is
        open. Raises `Fenced` if another process has taken the worker's name."""
        loop, step_time = asyncio.get_running_loop(), StepTime()
        while True:
            await asyncio.sleep(REPORT_PROGRESS_EVERY_SECONDS)
            progress = self._requests.progress()
            load = self._engine.load()
            step_us = step_time.measure(progress, loop.time(), loading_seconds=load.loading_seconds)
            if not progress:
                continue
            info = self._info(load)
            try:
                await self._transport.report_progress(info, progress, step_us=step_us)
            except UnknownWorker:
                await self.reregister()
            except Exception as error:
                if not is_transient(error):
                    raise
                reason = str(error) or type(error).__name__
                self._log.warning("progress_not_reported", error=reason)

    async def reregister(self) -> None:
        """Register again with all open requests, as Redis has lost this worker or one of its
        requests. Concurrent callers share one registration. Raises `Fenced` or `NotPermitted`."""
        if self._reregistration is None or self._reregistration.done():
            self._reregistration = asyncio.create_task(self._reregister(), name="reregistration")
        await asyncio.shield(self._reregistration)

    async def close(self) -> None:
        if self._reregistration is not None:
            await cancel_and_wait([self._reregistration])

    async def _claim(self) -> list[InboxMessage]:
        load = self._engine.load()
        self._metrics.running.set(load.running)
        self._metrics.waiting.set(load.waiting)
        self._metrics.open.set(len(self._requests))
        self._metrics.engine_tokens.set(load.generated_tokens)
        self._metrics.outbox_writable.set(not self._outbox.problem)
        self._metrics.drained.set(self._is_held)
        info = self._info(load)
        try:
            with self._metrics.claim_seconds.time():
                return await self._transport.claim(
                    info,
                    slots=max(0, info.slots - self._crowded_out(load)),
                    ready=info.state is WorkerState.READY and not info.problem,
                )
        except UnknownWorker:
            await self.reregister()
        except Exception as error:
            if not is_transient(error):
                raise
            self._log.warning("claim_failed", error=str(error) or type(error).__name__)
        return []

    def _crowded_out(self, load: EngineLoad) -> int:
        """Return how many sequences wait in the engine, which is the wrong place; not those that a
        wide request has beyond the slots, which are counted among those that the worker holds."""
        beyond_slots = max(0, self._requests.sequences - self.slots)
        return max(0, load.waiting - beyond_slots)

    async def _reregister(self) -> None:
        self._log.warning("redis_lost_this_worker", open_requests=len(self._requests))
        await self._transport.register(self._info(self._engine.load()))
        self._relay.resync()
        self._adapters.resync()
        held = self._requests.held()
        lost = await self._transport.adopt(held)
        self._requests.disown(
            (envelope.request_id, attempt)
            for envelope, attempt in held
            if envelope.request_id in lost
        )

    def _info(self, load: EngineLoad) -> WorkerInfo:
        full = self._outbox.problem
        is_started = self.slots > 0
        info = structs.replace(
            self._base_info,
            state=self._held_state if self._is_held else self.state,
            stays=self._is_held,
            running=load.running,
            waiting_in_engine=load.waiting,
            problem=self._problem or (full and f"its outbox takes nothing: {full}"),
            warning=self._gpus.warning,
            figures=self._watch.figures(time.monotonic()) if is_started else None,
            gpus=self._gpus.figures,
        )
        self._heartbeat.publish(info)
        return info

    @property
    def _held_state(self) -> WorkerState:
        """Return what a worker says of itself that would be ready if nobody held it."""
        if self.state is not WorkerState.READY:
            return self.state
        return WorkerState.DRAINING if self._requests else WorkerState.DRAINED
