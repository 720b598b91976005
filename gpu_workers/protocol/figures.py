"""What a worker tells of its engine and its GPUs with each heartbeat. Fields may be appended, with
None as their default."""

from typing import Final

import msgspec

THROTTLING: Final = (
    "power_cap",
    "slowdown",
    "heat",
    "hardware_heat",
    "power_brake",
    "sync_boost",
)


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How a worker's engine does; None is what it does not tell.

    `kv_used` is the share (0 to 1) of its KV cache in use; of the steps of the last seconds,
    `batch_used` is the mean share of the batch's sequences and `step_us` the median in
    microseconds, None where there were none. The last minute's: prompt tokens looked up in the
    prefix cache and found there, sequences preempted, tokens drafted by speculation and accepted.
    Adapters in its slots and in its memory, those in slots included.
    """

    kv_used: float | None = None
    batch_used: float | None = None
    step_us: int | None = None
    prefix_asked_tokens: int | None = None
    prefix_hit_tokens: int | None = None
    preemptions: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    adapters_in_slots: int | None = None
    adapters_in_memory: int | None = None


class GpuFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A GPU of a worker, as NVML reports it; None is what this GPU or its driver does not tell.

    `index` is NVML's. `busy` is the share (0 to 1) of the last moments in which it computed.
    `throttling`: why its clocks are lower than they could be, of `THROTTLING`. ECC errors count
    since its last reset.
    """

    uuid: str
    name: str
    index: int
    busy: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    celsius: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttling: list[str] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
