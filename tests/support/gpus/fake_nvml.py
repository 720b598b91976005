"""NVML's bindings as a test wants them: a machine's GPUs, and what each answers."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
GIB = 1024**3


@dataclass
class FakeGpu:
    """One GPU, with what an H100 under load reports. A value of `NOT_SUPPORTED` is not answered."""

    index: int
    uuid: str
    reasons: int = 0
    corrected: int = 0
    uncorrected: int = 0
    part_of: "FakeGpu | None" = None
    answers: dict[str, Any] = field(default_factory=dict)


class FakeNvml:
    """Stands in for the module `pynvml`. `problem` is the NVML error that every question gets."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *gpus: FakeGpu, parts: tuple[FakeGpu, ...] = ()) -> None:
        self.gpus = gpus
        self.parts = parts
        self.problem = 0
        self.is_open = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name, as all below
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        for each in (*self.gpus, *self.parts):
            if each.uuid == uuid:
                return each
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceIsMigDeviceHandle(self, gpu: FakeGpu) -> bool:  # noqa: N802
        return gpu.part_of is not None

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return gpu.part_of

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetIndex(self, gpu: FakeGpu) -> int:  # noqa: N802
        return gpu.index

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(used=61 * GIB, total=80 * GIB)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:  # noqa: N802
        if gpu.part_of is not None:
            raise pynvml.NVMLError(NOT_SUPPORTED)
        return SimpleNamespace(gpu=self._answer(gpu, "busy", 93), memory=40)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return self._answer(gpu, "power", 512_345)

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return self._answer(gpu, "limit", 700_000)

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> Any:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._answer(gpu, "celsius", 61)

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:  # noqa: N802
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:  # noqa: N802
        return gpu.reasons

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, since: int) -> Any:  # noqa: N802
        assert since == pynvml.NVML_VOLATILE_ECC
        if kind == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED:
            return gpu.corrected
        return self._answer(gpu, "uncorrected", gpu.uncorrected)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def _answer(self, gpu: FakeGpu, name: str, usual: int) -> int:
        if self.problem:
            raise pynvml.NVMLError(self.problem)
        answer: int = gpu.answers.get(name, usual)
        if answer == NOT_SUPPORTED and name in gpu.answers:
            raise pynvml.NVMLError(NOT_SUPPORTED)
        return answer
