"""The LoRA adapters that a vLLM engine has loaded."""

import asyncio
import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from vllm.lora.request import LoRARequest
from vllm.v1.engine.exceptions import EngineDeadError

from gpu_workers.adapter_files import check_adapter, describe_base
from gpu_workers.engine import AdapterRefused, EngineDied, LoadableAdapter, ProbeFailed
from gpu_workers.protocol.adapters import AdapterBase, AdapterEffect, BaseModule
from gpu_workers.vllm.adapters.effect import EffectProbe
from gpu_workers.vllm.adapters.worker_extension import LIST_MODULES

# No id is ever used twice; those of vLLM's own warm-up are the first ones.
_ids: Final = itertools.count(1_000_000)
# What differs between two hosts, or two versions of a library, with the same base.
_NOT_OF_THE_BASE: Final = ("_name_or_path", "transformers_version")

_log = structlog.get_logger("gpu_workers.vllm.adapters")


class LoadedAdapters:
    """By their opaque names. vLLM loads what it does not have in the middle of a step, and drops
    what was not used for longest: neither happens here, as what a request names is loaded, and no
    more are loaded than it holds."""

    def __init__(
        self, llm: Any, base: AdapterBase, *, slots: int, in_memory: int, probe: EffectProbe
    ) -> None:
        self.base = base
        self.slots = slots
        self.in_memory = in_memory
        self._llm = llm
        self._probe = probe
        self._loaded: dict[str, LoRARequest] = {}
        self._loading_seconds = 0.0
        self._began_loading: float | None = None
        self._one_at_a_time = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    def request_of(self, name: str) -> LoRARequest | None:
        """Return what vLLM calls an adapter; None for one that is not loaded."""
        return self._loaded.get(name)

    @property
    def count(self) -> int:
        return len(self._loaded)

    @property
    def loading_seconds(self) -> float:
        """Return for how long loads have kept the engine from its steps, this one too."""
        began = self._began_loading
        return self._loading_seconds + (0.0 if began is None else time.monotonic() - began)

    @contextmanager
    def _loading(self) -> Iterator[None]:
        self._began_loading = time.monotonic()
        try:
            yield
        finally:
            self._loading_seconds = self.loading_seconds
            self._began_loading = None

    async def load(self, adapter: LoadableAdapter) -> None:
        """Load as `Engine.load_adapter` says, to its end even where the caller does not wait for
        it. Raises `AdapterRefused` or `EngineDied`."""
        loading = asyncio.create_task(self._load(adapter), name="adapter-load")
        self._running.add(loading)
        loading.add_done_callback(self._running.discard)
        await asyncio.shield(loading)

    async def probe_base(self) -> None:
        """Learn the base's own answers before others ask. Raises `EngineDied`."""
        try:
            await self._probe.learn_base()
        except ProbeFailed as error:  # asked again with the first adapter
            _log.warning("adapter_base_not_probed", reason=str(error))

    async def probe(self, name: str) -> AdapterEffect:
        """Probe as `Engine.probe_adapter` says. Raises `ProbeFailed` or `EngineDied`."""
        request = self._loaded.get(name)
        if request is None:
            raise ProbeFailed("it is not loaded")
        return await self._probe.effect_of(request)

    async def unload(self, name: str) -> None:
        """Unload as `Engine.unload_adapter` says. Raises `EngineDied`."""
        async with self._one_at_a_time:
            request = self._loaded.pop(name, None)
            if request is not None:
                await self._remove(request)

    async def _load(self, adapter: LoadableAdapter) -> None:
        async with self._one_at_a_time:
            if adapter.name in self._loaded:
                return
            if len(self._loaded) >= self.in_memory:
                raise AdapterRefused(f"{self.in_memory} adapters are loaded, and no more may be")
            await asyncio.to_thread(check_adapter, adapter.folder, self.base)
            request = LoRARequest(
                lora_name=adapter.name,
                lora_int_id=next(_ids),
                lora_path=str(adapter.folder.absolute()),
            )
            try:
                with self._llm.guard.loading(), self._loading():
                    is_loaded = await self._llm.add_lora(request)
            except EngineDeadError as error:
                raise EngineDied("vLLM's engine process has died") from error
            except Exception as error:  # vLLM tells of all it does not like by this type
                await self._remove(request)
                raise AdapterRefused(f"vLLM cannot load it: {error}") from error
            if not is_loaded:
                raise AdapterRefused("vLLM has not loaded it")
            self._loaded[adapter.name] = request

    async def _remove(self, request: LoRARequest) -> None:
        """Have vLLM forget an adapter, or what it has of one."""
        try:
            await self._llm.remove_lora(request.lora_int_id)
        except EngineDeadError as error:
            raise EngineDied("vLLM's engine process has died") from error
        except Exception:  # noqa: BLE001 - as above; a slot of memory is what it costs
            _log.exception("adapter_not_removed", adapter=request.lora_name)


async def base_of(llm: Any, *, model: str, max_rank: int) -> AdapterBase:
    """Return what adapters of this engine are made for, as its workers have loaded it; each knows
    its own layers."""
    squares: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    for of_worker in await llm.collective_rpc(LIST_MODULES):
        for name, wide, out, square in of_worker:
            squares[name, wide, out] += square
    modules = [
        BaseModule(name=name, in_features=wide, out_features=out, norm=_root(square))
        for (name, wide, out), square in squares.items()
    ]
    config = llm.vllm_config.model_config.hf_config.to_dict()
    for name in _NOT_OF_THE_BASE:
        config.pop(name, None)
    configuration = json.dumps(config, sort_keys=True, default=str).encode()
    return describe_base(
        model=model, configuration=configuration, max_rank=max_rank, modules=modules
    )


def _root(square: float) -> float | None:
    """Return a norm; None for what was not measured, and for weights that are all zero."""
    return math.sqrt(square) if math.isfinite(square) and square > 0 else None
