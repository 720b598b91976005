"""vLLM in process: its AsyncLLM and serving objects, started, asked and ended as an `Engine`.

vLLM itself is imported when the engine starts, so that a worker is registered within a second.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from gpu_workers.config import WorkerConfig
from gpu_workers.engine import (
    AdapterRefused,
    BeginTexts,
    EngineDescription,
    EngineLoad,
    EngineStats,
    LoadableAdapter,
    Output,
    ProbeFailed,
    Result,
)
from gpu_workers.model_digest import digest_of
from gpu_workers.protocol.adapters import AdapterEffect
from gpu_workers.protocol.messages import Envelope
from gpu_workers.vllm.arguments import set_environment
from gpu_workers.vllm.parts import Part

if TYPE_CHECKING:
    from gpu_workers.vllm.serving import VllmServing

POLL_SECONDS: Final = 0.1
PINNED_VERSION: Final = "0.32.0"

_log = structlog.get_logger("gpu_workers.vllm.engine")


class UnsupportedVllm(RuntimeError):
    """What the worker cannot do without is not in this vLLM."""


class VllmEngine:
    """One thread starts the engine's processes and outlives them: the kernel ends a child when
    the thread that started it ends (see `process_tree`)."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._parent_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine-parent")
        self._loading: Future[VllmServing] | None = None
        self._serving: VllmServing | None = None

    async def start(self) -> EngineDescription:
        set_environment(self._config, os.environ)
        self._loading = self._parent_thread.submit(_load, self._config)
        self._serving = await asyncio.wrap_future(self._loading)
        return await self.open()

    async def open(self) -> EngineDescription:
        """Make vLLM's serving objects and probe all that is relied on inside vLLM."""
        from gpu_workers.vllm.probes import probe

        serving = self._started
        description = await serving.open()
        with serving.probe_requests():
            degraded = await probe(serving)
        adapters = serving.adapters
        return replace(
            description,
            adapter_slots=adapters.slots if adapters else 0,
            adapters_in_memory=adapters.in_memory if adapters else 0,
            adapter_base=adapters.base if adapters else None,
            can_resume=description.can_resume and Part.RESUMPTION not in degraded,
            degraded=tuple(sorted(degraded)),
            model_digest=await asyncio.to_thread(_digest_from_hub, self._config.model_path),
        )

    async def warm_up(self) -> None:
        from gpu_workers.vllm.warm_up import warm_up

        serving = self._started
        with serving.probe_requests():
            await warm_up(serving, model=self._config.model, context_tokens=serving.context_tokens)
        if serving.adapters is not None:
            await serving.adapters.probe_base()

    def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        return self._started.generate(envelope, begin_texts)

    async def abort(self, request_id: str) -> None:
        await self._started.abort(request_id)

    async def load_adapter(self, adapter: LoadableAdapter) -> None:
        adapters = self._started.adapters
        if adapters is None:
            raise AdapterRefused("this engine has no slots for adapters")
        await adapters.load(adapter)

    async def probe_adapter(self, name: str) -> AdapterEffect:
        adapters = self._started.adapters
        if adapters is None:
            raise ProbeFailed("this engine has no slots for adapters")
        return await adapters.probe(name)

    async def unload_adapter(self, name: str) -> None:
        if (adapters := self._started.adapters) is not None:
            await adapters.unload(name)

    def load(self) -> EngineLoad:
        return self._serving.load_now() if self._serving else EngineLoad(running=0, waiting=0)

    def stats(self) -> EngineStats:
        return self._serving.stats_now() if self._serving else EngineStats()

    async def check_health(self) -> None:
        self._started.check_health()

    async def stop(self) -> None:
        if self._loading is None:
            return
        loading, self._loading = self._loading, None
        if self._serving is not None:
            await self._serving.close()
        await asyncio.to_thread(_end, loading, self._parent_thread)
        self._serving = None

    @property
    def _started(self) -> "VllmServing":
        if self._serving is None:
            raise RuntimeError("the engine has not started")
        return self._serving


def _load(config: WorkerConfig) -> "VllmServing":
    try:
        from gpu_workers.vllm.serving import VllmServing
    except ImportError as error:
        raise UnsupportedVllm(
            f"This vLLM is not one that the worker can run: {error}. Expected is vLLM "
            f"{PINNED_VERSION}: install it with `make up`, or as requirements/engine-*.txt pin it."
        ) from error
    return VllmServing.load(config)


def _digest_from_hub(name: str) -> str:
    """Return the digest of a model that was fetched from the hub; "" of a folder, which is known
    already, and where it lies elsewhere."""
    if Path(name).is_dir():
        return ""
    try:
        from huggingface_hub import snapshot_download

        return digest_of(Path(snapshot_download(name, local_files_only=True)))
    except Exception as error:  # noqa: BLE001 - whatever it is, the pool goes by the engine alone
        _log.warning("no_model_digest", model=name, error=str(error))
        return ""


def _end(loading: "Future[VllmServing]", thread: ThreadPoolExecutor) -> None:
    """Shut a running engine down; if it is still loading, end the processes under it."""
    while not loading.done():
        for child in multiprocessing.active_children():
            child.kill()
        time.sleep(POLL_SECONDS)
    if not loading.cancelled() and loading.exception() is None:
        thread.submit(loading.result().shutdown).result()
    thread.shutdown()
