"""NVIDIA's management library, by its own Python bindings: what a worker's GPUs report."""

import importlib
from collections.abc import Callable
from typing import Any, Final

from gpu_workers.protocol.figures import GpuFigures

# NVML's bits of why clocks are lowered, in our words; those of an idle GPU, and of clocks that an
# operator has set, are none. See nvmlClocksEventReasons in NVML's reference.
_THROTTLING: Final = {
    0x04: "power_cap",
    0x08: "slowdown",
    0x10: "sync_boost",
    0x20: "heat",
    0x40: "hardware_heat",
    0x80: "power_brake",
}
_MILLI: Final = 1000


class NoGpu(Exception):
    """This machine has no NVML, or no driver under it; the message says which."""


class Nvml:
    """The driver's NVML, opened. `bindings` are those of nvidia-ml-py, its module `pynvml`."""

    def __init__(self, bindings: Any) -> None:
        self._nvml = bindings

    @classmethod
    def open(cls) -> "Nvml":
        """Import the bindings, and open the driver. Raises `NoGpu` where there is none."""
        bindings = importlib.import_module("pynvml")
        try:
            bindings.nvmlInit()
        except bindings.NVMLError as error:
            raise NoGpu(str(error)) from None
        return cls(bindings)

    def visible(self, cuda_visible_devices: str | None, most: int) -> list[Any]:
        """Return handles of the first `most` GPUs that CUDA shows a process with this setting: all
        where it is None, else those it names by index or by UUID, whole or its beginning, up to the
        first that there is not. Indices are NVML's, which are CUDA's under
        CUDA_DEVICE_ORDER=PCI_BUS_ID, and anyway where all GPUs are of one kind."""
        everything = [
            self._nvml.nvmlDeviceGetHandleByIndex(index)
            for index in range(self._nvml.nvmlDeviceGetCount())
        ]
        if cuda_visible_devices is None:
            return everything[:most]
        found: list[Any] = []
        for name in filter(None, map(str.strip, cuda_visible_devices.split(","))):
            handle = self._named(name, everything)
            if handle is None:
                break
            found.append(handle)
        return found[:most]

    def read(self, handle: Any) -> GpuFigures:
        """Return what a GPU, or a part of one (MIG), reports now. Raises `NVMLError` where it
        answers nothing any more."""
        nvml, gpu = self._nvml, self._whole(handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        use = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, gpu)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
        return GpuFigures(
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            index=nvml.nvmlDeviceGetIndex(gpu),
            busy=None if use is None else use.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            power_watts=None if power is None else power / _MILLI,
            power_limit_watts=None if limit is None else limit / _MILLI,
            celsius=self._ask(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_MEM),
            throttling=_words(self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu)),
            ecc_corrected=self._errors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=self._errors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _named(self, name: str, everything: list[Any]) -> Any:
        if name.isdigit():
            return everything[int(name)] if int(name) < len(everything) else None
        if name.startswith("MIG-"):
            return self._ask(self._nvml.nvmlDeviceGetHandleByUUID, name)
        uuids = (_text(self._nvml.nvmlDeviceGetUUID(handle)) for handle in everything)
        matches = [
            handle for handle, uuid in zip(everything, uuids, strict=True) if uuid.startswith(name)
        ]
        return matches[0] if len(matches) == 1 else None

    def _whole(self, handle: Any) -> Any:
        """Return the GPU that a part belongs to: heat, power and errors are known of that alone."""
        if self._ask(self._nvml.nvmlDeviceIsMigDeviceHandle, handle):
            return self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        return handle

    def _errors(self, gpu: Any, kind: int) -> int | None:
        count: int | None = self._ask(
            self._nvml.nvmlDeviceGetTotalEccErrors, gpu, kind, self._nvml.NVML_VOLATILE_ECC
        )
        return count

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer, None where this GPU or its driver has none."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._unanswerable:
                return None
            raise

    @property
    def _unanswerable(self) -> tuple[int, ...]:
        nvml = self._nvml
        return (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_NOT_FOUND,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _words(bits: int | None) -> list[str] | None:
    return None if bits is None else [word for bit, word in _THROTTLING.items() if bits & bit]
