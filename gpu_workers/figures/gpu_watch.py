"""Reads a worker's GPUs every few seconds, in a thread, and says what is wrong with them."""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog

from gpu_workers.figures.nvml import NoGpu, Nvml
from gpu_workers.protocol.figures import GpuFigures

READ_EVERY_SECONDS: Final = 3.0
# Clocks that are lowered for these reasons are not those that were bought.
_WORDS: Final = {
    "slowdown": "hardware slowdown",
    "heat": "heat",
    "hardware_heat": "heat (hardware)",
    "power_brake": "power brake",
}

_log = structlog.get_logger("gpu_workers.figures.gpu_watch")


class GpuWatch:
    """`figures` are None before the first reading, and while the driver does not answer; empty
    where the worker has no GPU. `warning` is what an operator is to see to."""

    def __init__(
        self,
        open_nvml: Callable[[], Nvml] = Nvml.open,
        *,
        every_seconds: float = READ_EVERY_SECONDS,
    ) -> None:
        self._open_nvml = open_nvml
        self._every_seconds = every_seconds
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._uncorrected_at_start: dict[str, int] = {}
        self.figures: list[GpuFigures] | None = None
        self.warning = ""

    async def run(
        self,
        gpus: int,
        *,
        on_reading: Callable[[Iterable[GpuFigures]], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Read so many GPUs until cancelled; return at once where there are none. `on_reading` is
        called with each reading, an empty one while the driver does not answer; `on_failure` once,
        with the reason, when a GPU has errors that it could not correct."""
        opened = await self._open(gpus)
        if opened is None:
            self.figures = []
            return
        nvml, handles = opened
        has_failed = False
        try:
            while True:
                await self._look(nvml, handles)
                on_reading(self.figures or ())
                if not has_failed and (reason := self._failure()):
                    has_failed = True
                    on_failure(reason)
                await asyncio.sleep(self._every_seconds)
        finally:
            nvml.close()

    async def _open(self, gpus: int) -> tuple[Nvml, list[Any]] | None:
        if not gpus:
            return None
        try:
            nvml = await asyncio.to_thread(self._open_nvml)
            handles = await asyncio.to_thread(nvml.visible, self._visible, gpus)
        except NoGpu as error:
            _log.warning("no_gpu_figures", reason=str(error))
            return None
        except Exception as error:  # noqa: BLE001 - what only shows figures must not end a worker
            _log.warning("no_gpu_figures", reason=f"{type(error).__name__}: {error}")
            return None
        if handles:
            return nvml, handles
        _log.warning("no_gpu_figures", reason=f"none is visible, of {gpus} that the engine uses")
        nvml.close()
        return None

    async def _look(self, nvml: Nvml, handles: list[Any]) -> None:
        try:
            figures = await asyncio.to_thread(lambda: [nvml.read(handle) for handle in handles])
        except Exception as error:  # noqa: BLE001 - the next reading may answer again
            if self.figures is not None or not self.warning:
                _log.warning("gpus_not_read", reason=f"{type(error).__name__}: {error}")
            self.figures, self.warning = None, f"its GPUs cannot be read: {error}"
            return
        for each in figures:
            if each.ecc_uncorrected is not None:
                self._uncorrected_at_start.setdefault(each.uuid, each.ecc_uncorrected)
        self.figures, before = figures, self.warning
        self.warning = "; ".join(filter(None, map(self._complaint, figures)))
        if self.warning and self.warning != before:
            _log.warning("gpu_warning", reason=self.warning)

    def _complaint(self, gpu: GpuFigures) -> str:
        """Return what is wrong with a GPU, empty where nothing is."""
        complaints = []
        reasons = [_WORDS[each] for each in gpu.throttling or () if each in _WORDS]
        if reasons:
            complaints.append(f"is throttled: {', '.join(reasons)}")
        if errors := gpu.ecc_uncorrected:
            complaints.append(f"has had {errors} uncorrectable memory errors since its last reset")
        return f"GPU {gpu.index} {' and '.join(complaints)}" if complaints else ""

    def _failure(self) -> str:
        """Return which GPU has errors that it had not when the worker began, empty if none has."""
        for gpu in self.figures or ():
            new = (gpu.ecc_uncorrected or 0) - self._uncorrected_at_start.get(gpu.uuid, 0)
            if new > 0:
                return f"GPU {gpu.index} ({gpu.uuid}) has {new} new uncorrectable memory errors"
        return ""
