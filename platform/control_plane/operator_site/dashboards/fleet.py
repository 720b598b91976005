"""The fleet: every pool's workers, what their engines and GPUs do, and which were lost."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from control_plane.live.dispatch_redis import dashboards_redis
from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.dashboard import Dashboard
from control_plane.operator_site.dashboards.words import UNKNOWN, count, percent, share_of
from gpu_workers.protocol.figures import EngineFigures, GpuFigures
from gpu_workers.protocol.messages import WorkerState
from inference.models import Worker
from inference.operations.fleet import PoolFleet, SeenWorker, read_fleet
from inference.operations.pool_identity import PoolIdentity
from tenants.isolation.scoping import operator_scope

LOST_SINCE: Final = timedelta(hours=24)
_GIB: Final = 1024**3
_THROTTLING: Final = {
    "power_cap": "power cap",
    "slowdown": "hardware slowdown",
    "heat": "heat",
    "hardware_heat": "heat (hardware)",
    "power_brake": "power brake",
    "sync_boost": "sync boost",
}


@dataclass(frozen=True, kw_only=True)
class GpuRow:
    """A GPU in words; `problem` is what is wrong with it, empty where nothing is."""

    title: str
    text: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """A worker in words; what it does not tell is a dash. `kind`: good, warn, bad or info."""

    worker_id: str
    name: str
    host: str
    state: str
    kind: str
    slots: str
    waiting: str
    kv: str
    kv_percent: int | None
    batch: str
    step: str
    prefix: str
    preemptions: str
    speculation: str
    adapters: str
    gpus: tuple[GpuRow, ...]
    gpu_text: str
    seen: str
    problems: tuple[str, ...]
    can_drain: bool
    can_resume: bool


@dataclass(frozen=True, kw_only=True)
class PoolTable:
    """A pool, with what its ready workers have together. `refused` says which worker was not let in
    last, `problem` what cannot be read; empty where there is none."""

    name: str
    ready: int
    running: int
    slots: int
    queued: int
    serves: str
    refused: str
    problem: str
    workers: tuple[WorkerRow, ...]


@dataclass(frozen=True, kw_only=True)
class LostRow:
    """A worker that fell silent without leaving."""

    worker_id: str
    name: str
    pool: str
    host: str
    running: int
    problem: str
    last_seen_at: datetime


def pool_tables() -> list[PoolTable]:
    """Return the fleet as it is now. Raises `RedisError` within seconds."""
    with dashboards_redis() as redis:
        return [_table(pool) for pool in read_fleet(redis)]


def lost_workers() -> list[LostRow]:
    """Return whom nobody has heard of since, of the last day."""
    with operator_scope("dashboard fleet"):
        return [
            LostRow(
                worker_id=worker.worker_id,
                name=worker.name,
                pool=worker.pool,
                host=worker.host,
                running=worker.running,
                problem=worker.problem or worker.warning,
                last_seen_at=worker.last_seen_at,
            )
            for worker in Worker.objects.lost(timezone.now() - LOST_SINCE)
        ]


def _table(pool: PoolFleet) -> PoolTable:
    ready = [worker for worker in pool.workers if worker.is_ready]
    return PoolTable(
        name=pool.name,
        ready=len(ready),
        running=sum(worker.info.running for worker in ready),
        slots=sum(worker.info.slots for worker in ready),
        queued=pool.queued,
        serves=identity_words(pool.identity.engine, pool.identity.digest),
        refused=_refused(pool.identity),
        problem=pool.problem,
        workers=tuple(_row(worker, pool.identity) for worker in pool.workers),
    )


def identity_words(engine: str, digest: str) -> str:
    """Return what a pool serves or a worker brings, as `vllm 1a2b3c4d5e6f`; empty if not known."""
    return " ".join(filter(None, (engine, digest.removeprefix("sha256:")[:12])))


def _refused(identity: PoolIdentity) -> str:
    last = identity.last_refused
    if last is None:
        return ""
    brought = identity_words(last.engine, last.digest)
    return (
        f"{identity.refusals:,} registrations refused; the last, of {last.name} with {brought}, at "
        f"{last.at:%Y-%m-%d %H:%M} UTC"
    )


def _row(worker: SeenWorker, identity: PoolIdentity) -> WorkerRow:
    info, figures = worker.info, worker.info.figures or EngineFigures()
    state, kind = _state(worker)
    gpus = tuple(map(_gpu, info.gpus or ()))
    problems = [info.problem, info.warning]
    if identity.differs_from(info.engine, info.model_digest):
        brings = identity_words(info.engine, info.model_digest)
        problems.append(f"it serves {brings}, which is not what the pool serves")
    elif identity.digest and not info.model_digest:
        problems.append("it does not tell which model it has")
    if worker.is_busy:
        problems.append(f"its event loop has been busy for {info.loop_age_ms / 1000:.1f} s")
    if info.degraded:
        problems.append(f"its engine does without: {', '.join(info.degraded)}")
    return WorkerRow(
        worker_id=info.worker_id,
        name=info.name,
        host=info.host,
        state=state,
        kind=kind,
        slots=f"{info.running} / {info.slots}",
        waiting=str(info.waiting_in_engine),
        kv=percent(figures.kv_used),
        kv_percent=None if figures.kv_used is None else round(figures.kv_used * 100),
        batch=percent(figures.batch_used),
        step=UNKNOWN if figures.step_us is None else f"{figures.step_us / 1000:.1f} ms",
        prefix=share_of(figures.prefix_hit_tokens, figures.prefix_asked_tokens),
        preemptions=count(figures.preemptions),
        speculation=share_of(figures.accepted_tokens, figures.drafted_tokens),
        adapters=_adapters(figures),
        gpus=gpus,
        gpu_text="none" if info.gpus == [] else UNKNOWN,
        seen=f"{worker.silent_ms / 1000:.0f} s ago",
        problems=tuple(filter(None, problems)),
        can_drain=worker.is_live and (info.stays or info.state is not WorkerState.DRAINING),
        can_resume=worker.is_live and info.stays,
    )


def _state(worker: SeenWorker) -> tuple[str, str]:
    if not worker.is_live:
        return "lost", "bad"
    if worker.is_busy:
        return "busy", "warn"
    if worker.info.state is not WorkerState.READY:
        return worker.info.state.value, "info"
    if worker.info.problem:
        return "takes nothing", "bad"
    return "ready", "warn" if worker.info.warning else "good"


def _gpu(gpu: GpuFigures) -> GpuRow:
    parts = []
    if gpu.busy is not None:
        parts.append(f"{gpu.busy:.0%} busy".replace("%", " %"))
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
        used, total = gpu.memory_used_bytes / _GIB, gpu.memory_total_bytes / _GIB
        parts.append(f"{used:.0f} of {total:.0f} GiB")
    if gpu.celsius is not None:
        parts.append(f"{gpu.celsius} °C")
    if gpu.power_watts is not None:
        parts.append(f"{gpu.power_watts:.0f} W")
    if gpu.sm_clock_mhz is not None:
        parts.append(f"{gpu.sm_clock_mhz} MHz")
    problems = [_THROTTLING.get(each, each) for each in gpu.throttling or ()]
    if gpu.ecc_uncorrected:
        problems.append(f"{gpu.ecc_uncorrected} uncorrectable memory errors")
    if gpu.ecc_corrected:
        problems.append(f"{gpu.ecc_corrected} corrected memory errors")
    return GpuRow(
        title=f"GPU {gpu.index}: {gpu.name}, {gpu.uuid}",
        text=f"{gpu.index}: {', '.join(parts) or UNKNOWN}",
        problem=", ".join(problems),
    )


def _adapters(figures: EngineFigures) -> str:
    if figures.adapters_in_memory is None:
        return UNKNOWN
    return f"{figures.adapters_in_slots} / {figures.adapters_in_memory}"


FLEET: Final = Dashboard(
    name="fleet",
    title="Fleet",
    icon="dns",
    permission="inference.view_worker",
    panels=(
        Panel(
            name="fleet-pools",
            title="Pools",
            template="admin/dashboards/fleet_pools.html",
            read=pool_tables,
        ),
        Panel(
            name="fleet-lost",
            title="Lost in the last 24 hours",
            template="admin/dashboards/fleet_lost.html",
            read=lost_workers,
        ),
    ),
    legend=(
        "Sequences are choices of requests being decoded. Batch and step time are of the last "
        "seconds, prefix hits, preemptions and accepted speculation of the last minute. A dash is "
        "what a worker does not tell, or what there was none of."
    ),
)
