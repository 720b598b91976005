"""A worker's life: register, load the engine, take requests, drain, leave.

    STARTING --engine loaded and warm--> READY --SIGTERM--> DRAINING --nothing open--> gone

A message of an operator drains it as SIGTERM does, and so do memory errors of its GPUs; another has
it take nothing until it is resumed. A worker that Redis fences, or whose engine died or hangs, ends
what it holds and leaves with an exit code of its own, so that the supervisor starts a fresh one.
One whose event loop is stuck is ended by its heartbeat.
"""

import asyncio
import faulthandler
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import structlog

from gpu_workers.adapters.worker_adapters import WorkerAdapters
from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.config import ADAPTER_CACHE_BYTES
from gpu_workers.engine import Engine, EngineDied, EngineHung
from gpu_workers.figures.gpu_watch import GpuWatch
from gpu_workers.heartbeat import Heartbeat
from gpu_workers.lease import Lease
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.calls import UsageCalls
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.outbox.relay import OutboxRelay
from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.messages import Drain, Resume, WorkerInfo, WorkerState
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.protocol.tracing import Tracer
from gpu_workers.requests.engine_token_reporter import REPORT_EVERY_SECONDS, EngineTokenReporter
from gpu_workers.requests.open_request import failure
from gpu_workers.requests.open_requests import OpenRequests
from gpu_workers.requests.step_time import StepWatch
from gpu_workers.transport import Fenced, NotPermitted, Transport, WrongModel

CHECK_ENGINE_EVERY_SECONDS: Final = 1.0
CHECK_GATEWAYS_EVERY_SECONDS: Final = 2.0
# Between two answers; longer ones may have kept gateways from renewing their heartbeats.
GATEWAYS_PAUSE_SECONDS: Final = 2 * CHECK_GATEWAYS_EVERY_SECONDS
SECONDS_TO_END_ABORTED: Final = 5.0
SECONDS_TO_END_FAILED: Final = 1.0
SECONDS_TO_FLUSH: Final = 5.0

STOPPED: Final = failure(503, "The worker that served this request was stopped.", "worker_stopped")

_log = structlog.get_logger("gpu_workers.worker")


class Exit(IntEnum):
    """Exit codes, so that a supervisor's log tells the causes apart."""

    DRAINED = 0
    START_FAILED = 1
    ENGINE_DIED = 3
    FENCED = 4
    INTERNAL_ERROR = 5
    LOOP_STUCK = 6
    ENGINE_HUNG = 7
    WRONG_MODEL = 8


class Worker:
    """Runs one engine for one pool. `run` returns the exit code; `drain` may be called at any time,
    a second time to end open requests at once. `on_warm` is called once, before the first
    request."""

    def __init__(
        self,
        *,
        engine: Engine,
        transport: Transport,
        heartbeat: Heartbeat,
        outbox: Outbox,
        worker_id: str,
        name: str,
        pool: str,
        model: str,
        engine_name: str,
        slots: int | None = None,
        drain_seconds: float = 30.0,
        hung_seconds: float = 60.0,
        metrics_url: str = "",
        model_digest: str = "",
        gpus: GpuWatch | None = None,
        adapter_cache: Path | None = None,
        adapter_cache_bytes: int = ADAPTER_CACHE_BYTES,
        counter_report_seconds: float = REPORT_EVERY_SECONDS,
        on_warm: Callable[[], None] = lambda: None,
        tracer: Tracer | None = None,
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._heartbeat = heartbeat
        self._outbox = outbox
        self._metrics = WorkerMetrics(model)
        self._drain_seconds = drain_seconds
        self._hung_seconds = hung_seconds
        self._slots = slots
        self._on_warm = on_warm
        self._gpus = gpus or GpuWatch()
        self._is_engine_dead = False
        # What is not known before the engine has started is zero until then
        info = WorkerInfo(
            worker_id=worker_id,
            name=name,
            pool=pool,
            model=model,
            engine=engine_name,
            engine_version="",
            state=WorkerState.STARTING,
            slots=0,
            context_tokens=0,
            kv_cache_tokens=0,
            template_overhead_tokens=0,
            max_token_bytes=0,
            running=0,
            waiting_in_engine=0,
            started_at_ms=now_ms(),
            host=socket.gethostname(),
            pid=os.getpid(),
            metrics_url=metrics_url,
            model_digest=model_digest,
        )
        self._adapters = WorkerAdapters(
            engine=engine,
            redis=transport.redis,
            post=transport.post_adapters,
            pool=pool,
            metrics=self._metrics,
            cache=adapter_cache,
            cache_bytes=adapter_cache_bytes,
        )
        self._requests = OpenRequests(
            engine=engine,
            adapters=self._adapters,
            transport=transport,
            outbox=outbox,
            metrics=self._metrics,
            worker_id=worker_id,
            on_engine_died=self._engine_died,
            on_lost_by_redis=self._reregister,
            tracer=tracer,
        )
        self._relay = OutboxRelay(
            outbox,
            UsageCalls(transport.redis, pool=pool, outbox_id=outbox.outbox_id),
            self._metrics,
            worker_name=name,
        )
        self._counter_reporter = EngineTokenReporter(
            engine=engine,
            requests=self._requests,
            outbox=outbox,
            pool=pool,
            worker_id=worker_id,
            every_seconds=counter_report_seconds,
        )
        self._lease = Lease(
            info,
            transport=transport,
            heartbeat=heartbeat,
            engine=engine,
            requests=self._requests,
            adapters=self._adapters,
            outbox=outbox,
            relay=self._relay,
            metrics=self._metrics,
            gpus=self._gpus,
        )
        self._drain_reason = ""
        self._drain_asked = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = _log.bind(worker_id=worker_id, pool=pool)

    @property
    def state(self) -> WorkerState:
        return self._lease.state

    @property
    def open_requests(self) -> int:
        """Return how many requests the worker holds."""
        return len(self._requests)

    async def run(self) -> Exit:
        """Serve until drained, fenced or without an engine; everything is freed on return."""
        try:
            await self._lease.register()
            self._heartbeat.start(on_age=self._metrics.loop_age.set, on_stuck=self._end_process)
            self._supervise(self._relay.run())
            self._supervise(self._lease.claim_forever())
            self._supervise(self._read_inbox())
            start = self._supervise(self._start_engine())
            self._supervise(self._drain_when_asked(start))
            return await self._exit
        except Fenced as error:
            self._log.error("fenced", error=str(error))
            return Exit.FENCED
        except NotPermitted as error:
            self._log.error("not_permitted", error=str(error))
            return Exit.START_FAILED
        except WrongModel as error:
            self._log.error("wrong_model", error=str(error))
            return Exit.WRONG_MODEL
        finally:
            await self._release()

    def drain(self) -> None:
        """Take nothing new, let open requests end, leave. Called a second time, end them now."""
        if self._drain_asked.is_set():
            self._stop_asked.set()
        self._drain_asked.set()

    async def _start_engine(self) -> None:
        try:
            known = await self._engine.start()
            await self._lease.identify(known.model_digest)
            self._supervise(self._check_engine_forever())
            await self._engine.warm_up()
            upkeep = await self._adapters.start(known)
        except (Fenced, WrongModel):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker leaves with a reason
            self._log.exception("engine_did_not_start")
            self._end(Exit.START_FAILED, str(error))
            return
        for each in upkeep:
            self._supervise(each)
        if self._drain_asked.is_set():
            return
        self._on_warm()
        self._lease.describe(known, max_slots=self._slots)
        self._lease.enter(WorkerState.READY)
        self._supervise(
            self._gpus.run(known.gpus, on_reading=self._metrics.gpus, on_failure=self._gpu_failed)
        )
        self._metrics.degraded(known.degraded)
        self._metrics.slots.set(self._lease.slots)
        self._metrics.engine_up.set(1)
        self._supervise(self._check_gateways_forever())
        self._supervise(self._lease.report_progress_forever())
        self._supervise(self._counter_reporter.run())
        self._log.info(
            "ready", slots=self._lease.slots, engine=known.engine, degraded=known.degraded
        )
        await self._lease.claim()

    async def _drain_when_asked(self, start: "asyncio.Task[None]") -> None:
        await self._drain_asked.wait()
        reason = self._drain_reason
        self._log.info("draining", open_requests=len(self._requests), reason=reason or "asked to")
        self._lease.enter(WorkerState.DRAINING, problem=reason)
        start.cancel()
        await self._lease.claim()
        await self._requests.wait_until_empty(self._drain_seconds, until=self._stop_asked)
        if self._requests:
            self._log.warning("drain_cut_short", open_requests=len(self._requests))
            self._requests.abort_all(STOPPED)
            await self._requests.wait_until_empty(SECONDS_TO_END_ABORTED)
        if not self._is_engine_dead:
            await self._counter_reporter.report(is_final=True)
        try:
            await self._requests.flush(SECONDS_TO_FLUSH)
            await self._relay.tick()
            await self._transport.deregister()
        except Exception as error:
            if not is_transient(error):
                raise
            self._log.warning("left_without_deregistering", error=str(error))
        self._end(Exit.DRAINED, reason or "drained")

    def _gpu_failed(self, reason: str) -> None:
        self._log.error("gpu_failed", reason=reason)
        if not self._drain_asked.is_set():
            self._drain_reason = reason
            self.drain()

    def _engine_died(self, error: EngineDied) -> None:
        """Begin to leave; open requests and the health check may all call this, it acts once."""
        if not self._is_engine_dead:
            self._is_engine_dead = True
            code = Exit.ENGINE_HUNG if isinstance(error, EngineHung) else Exit.ENGINE_DIED
            self._log.error(code.name.lower(), error=str(error))
            self._metrics.engine_up.set(0)
            self._supervise(self._leave_without_engine(code, str(error)))

    async def _leave_without_engine(self, code: Exit, reason: str) -> None:
        """Wait for the engine to end its requests, give up those that it does not, and exit."""
        self._lease.enter(WorkerState.DRAINING)
        await self._requests.wait_until_empty(SECONDS_TO_END_FAILED)
        await self._requests.give_up()
        await self._requests.flush(SECONDS_TO_FLUSH)
        self._end(code, reason)

    async def _release(self) -> None:
        self._metrics.engine_up.set(0)
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self._transport.close)
            last_first.push_async_callback(self._engine.stop)
            last_first.push_async_callback(self._adapters.close)
            last_first.push_async_callback(self._outbox.close)
            last_first.push_async_callback(self._requests.close)
            last_first.push_async_callback(self._lease.close)
            last_first.push_async_callback(self._heartbeat.close)
            await cancel_and_wait(self._tasks)

    async def _read_inbox(self) -> None:
        async for message in self._transport.inbox():
            match message:
                case Drain(stays=False):
                    self._drain_asked.set()
                case Drain() | Resume():
                    await self._lease.hold(isinstance(message, Drain))
                case _:
                    self._requests.take(message)

    async def _reregister(self) -> None:
        await self._lease.reregister()

    def _end_process(self, loop_age_seconds: float) -> None:
        """End it at once: its loop, which would end it in order, does nothing any more. Called from
        the heartbeat's thread, so nothing here waits for a lock that the loop may hold."""
        message = (
            f"the event loop is stuck since {loop_age_seconds:.0f} s; exit {Exit.LOOP_STUCK}\n"
        )
        os.write(2, message.encode())
        faulthandler.dump_traceback(sys.__stderr__ or 2)  # where it is: files and lines, no values
        os._exit(Exit.LOOP_STUCK)

    def _end(self, code: Exit, reason: str) -> None:
        if not self._exit.done():
            self._log.info("leaving", code=code.name, reason=reason)
            self._exit.set_result(code)

    def _supervise(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Keep a reference to a task; if it ends unexpectedly, end the worker."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Fenced | WrongModel):
            self._end(Exit.FENCED if isinstance(error, Fenced) else Exit.WRONG_MODEL, str(error))
            return
        self._log.error("worker_task_failed", exc_info=error)
        self._end(Exit.INTERNAL_ERROR, str(error))

    async def _check_engine_forever(self) -> None:
        loop, watch = asyncio.get_running_loop(), StepWatch(least_seconds=self._hung_seconds)
        while not self._is_engine_dead:
            try:
                await self._engine.check_health()
                watch.look(self._engine.load(), loop.time())
                # While it warms up it may compile for minutes; that is what it warms up for.
                if watch.is_hung and self.state is not WorkerState.STARTING:
                    raise EngineHung(f"no step in {watch.idle_seconds:.0f} s, with requests open")
            except EngineDied as error:
                self._engine_died(error)
            await asyncio.sleep(CHECK_ENGINE_EVERY_SECONDS)

    async def _check_gateways_forever(self) -> None:
        missed: set[str] = set()
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(CHECK_GATEWAYS_EVERY_SECONDS)
            gateways = self._requests.gateways()
            before, looked_at = looked_at, time.monotonic()
            try:
                gone = gateways - await self._transport.live_gateways(gateways)
                for message in await self._transport.lost_messages():
                    self._requests.take(message)
            except Exception as error:
                if not is_transient(error):
                    raise
                gone = set()
            if time.monotonic() - before > GATEWAYS_PAUSE_SECONDS:
                gone = set()  # Redis stood still, or this process: so may they have
            # Missing twice, so that a Redis that restarted empty does not end every stream.
            for gateway_id in missed & gone:
                self._log.warning("gateway_vanished", gateway_id=gateway_id)
                self._requests.abort_gateway(gateway_id)
            missed = gone
