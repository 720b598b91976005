"""What breaks, and what is held to a bar then."""

import asyncio
import signal
import time
from datetime import UTC, datetime
from statistics import quantiles

from gpu_workers.protocol import keys
from tests.chaos.load import PROMPTS, Load
from tests.chaos.processes import STEP_MS, metric, until
from tests.chaos.report import Report
from tests.chaos.stack import Stack

STREAMS = 200
STEADY_SECONDS = 10.0
PAUSE_SECONDS = 30.0
SHORT_PAUSE_SECONDS = 12.0
PAUSES = 6
CANCELLATIONS = 60
# A gateway's heartbeat lives for six seconds; workers look twice, every two seconds.
GATEWAY_LEASE_SECONDS = 6.0 + 2 * 2.0


async def kill_a_worker(stack: Stack, report: Report) -> None:
    """kill -9 of one of three workers under load."""
    drill = "kill -9 of a worker"
    load = await _steady_load(stack)
    killed_at = time.monotonic()
    before = load.rate(killed_at - 4, killed_at)
    stack.workers.pop(0).signal(signal.SIGKILL)
    await asyncio.sleep(14)
    report.add(drill, "streams", STREAMS)
    report.add(drill, "rate before", before, "tokens/s")
    seconds = _seconds_to_full_rate(load, killed_at, before)
    report.add(drill, "seconds to the full rate again", seconds, "s", most=10)
    await _end(stack, load, drill, report)
    await stack.add_worker()
    await until(stack.is_ready)


async def slow_a_worker(stack: Stack, report: Report) -> None:
    """One of three workers takes four times as long for a step; what the others' clients notice."""
    drill = "a worker at a quarter of the speed"
    load = await _load(stack, streams=STREAMS // 2)
    await asyncio.sleep(STEADY_SECONDS)
    usual = (time.monotonic() - STEADY_SECONDS, time.monotonic())
    stack.workers.pop(0).signal(signal.SIGTERM)
    slow = await stack.add_worker(step_ms=4 * STEP_MS)
    await until(stack.is_ready)
    await asyncio.sleep(STEADY_SECONDS)  # by now it has been found out
    since = time.monotonic()
    await asyncio.sleep(2 * STEADY_SECONDS)
    slowed = (since, time.monotonic())
    await _end(stack, load, drill, report)
    before, after = (_p99_seconds(load, *window) for window in (usual, slowed))
    report.add(drill, "p99 of a stream before", before, "s")
    report.add(drill, "p99 of a stream beside it", after, "s", most=1.1 * before)
    stack.workers.remove(slow)
    slow.signal(signal.SIGTERM)
    await stack.add_worker()
    await until(stack.is_ready)


async def pause_a_worker(stack: Stack, report: Report) -> None:
    """SIGSTOP for half a minute, then SIGCONT: its lease has run out long ago."""
    drill = "SIGSTOP of a worker"
    load = await _steady_load(stack)
    worker = stack.workers[0]
    await worker.pause(PAUSE_SECONDS)
    await asyncio.sleep(6)
    await _end(stack, load, drill, report)
    dropped = await _of_gateways(stack, "penstock_gateway_stale_frames_total")
    report.add(drill, "stale frames that came and were dropped", dropped)
    serving = await metric(worker.url, "penstock_worker_engine_up")
    report.add(drill, "workers that did not come back", 1 - serving, most=0)


async def pause_workers_often(stack: Stack, report: Report) -> None:
    """SIGSTOP of one worker after another, for twice the time of a lease each: many are stopped
    between a request's last token and its end."""
    drill = "SIGSTOP of workers, again and again"
    load = await _steady_load(stack)
    for turn in range(PAUSES):
        await stack.workers[turn % len(stack.workers)].pause(SHORT_PAUSE_SECONDS)
        await asyncio.sleep(2)
    await _end(stack, load, drill, report)
    fetched = await _of_gateways(stack, "penstock_gateway_fetched_ends_total")
    report.add(drill, "ends that did not come and were read from Redis", fetched)


async def kill_a_gateway(stack: Stack, report: Report) -> None:
    """kill -9 of one of two gateways: workers stop what nobody reads any more."""
    drill = "kill -9 of a gateway"
    load = await _steady_load(stack)
    killed_at = datetime.now(UTC)
    stack.gateways.pop(0).kill()
    load.ports = stack.ports
    await asyncio.sleep(GATEWAY_LEASE_SECONDS + 2)
    lost = [each for each in load.answers if each.error == "connection_lost" and each.request_id]
    report.add(drill, "streams that went with it", len(lost))
    await _end(stack, load, drill, report)
    records = await stack.records(each.request_id for each in lost if each.request_id)
    ends = [(each.finished_at - killed_at).total_seconds() for each in records.values()]
    longest = max(ends, default=float("inf"))
    bar = GATEWAY_LEASE_SECONDS
    report.add(drill, "its last request ended in an engine after", longest, "s", most=bar)
    await stack.add_gateway()


async def lose_redis(stack: Stack, report: Report) -> None:
    """The dispatch Redis is killed under load and started again, empty."""
    drill = "Redis lost"
    load = await _steady_load(stack)
    killed_at = time.monotonic()
    await asyncio.to_thread(stack.servers.kill_dispatch_redis)
    await asyncio.sleep(2)
    await asyncio.to_thread(stack.servers.start_dispatch_redis)
    await stack.redis.connection_pool.disconnect()
    back_at = time.monotonic()
    seconds = await until(lambda: _completes(load, back_at))
    report.add(
        drill,
        "until a request that came then was complete, 5 s of it its own",
        seconds,
        "s",
        most=15,
    )
    await asyncio.sleep(10)
    open_then = [each for each in load.answers if killed_at <= each.ended_at < back_at + 8]
    gone_on = sum(each.is_complete for each in open_then)
    report.add(drill, "streams of that time that went on to their end", gone_on)
    report.add(drill, "and that ended typed", len(open_then) - gone_on)
    rude = [each for each in load.answers if each.status == 503 and not each.retry_after]
    report.add(drill, "503 without Retry-After", len(rude), most=0)
    await _end(stack, load, drill, report)
    await _compare_budget(stack, load, drill, report)


async def cancel(stack: Stack, report: Report) -> None:
    """Clients leave; their requests have to leave the engine within a step and 50 ms."""
    drill = "cancellation"
    load = await _load(stack, streams=40)
    await asyncio.sleep(5)
    left: dict[str, float] = {}
    for turn in range(CANCELLATIONS):
        port = stack.ports[turn % len(stack.ports)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(load.request(PROMPTS[0], port))
        received = b""
        while b'"content":"' not in received:
            received += await reader.read(65_536)
        left_at = time.time()
        writer.transport.abort()
        left[received.partition(b"x-request-id: ")[2][:32].decode()] = left_at
        await asyncio.sleep(0.01 * (turn % 5))
    await _end(stack, load, drill, report)
    records = await stack.records(left)
    ends = [1000 * (each.finished_at.timestamp() - left[one]) for one, each in records.items()]
    bar = STEP_MS + 50
    report.add(drill, "cancellations", len(ends))
    report.add(drill, "p50 to its end in the engine", quantiles(ends, n=100)[49], "ms")
    report.add(drill, "p99 to its end in the engine", quantiles(ends, n=100)[98], "ms", most=bar)


async def _load(stack: Stack, *, streams: int) -> Load:
    load = Load(stack.ports, stack.target, streams=streams)
    await load.learn()
    load.start()
    return load


async def _steady_load(stack: Stack) -> Load:
    load = await _load(stack, streams=STREAMS)
    await asyncio.sleep(STEADY_SECONDS)
    return load


async def _end(stack: Stack, load: Load, drill: str, report: Report) -> None:
    """Lets all end; then nothing may be left, missing, or said twice."""
    await load.stop()
    seconds = await until(stack.is_empty)
    await asyncio.sleep(1)
    report.add(drill, "until queues, leases and reservations were empty", seconds, "s", most=60)
    for outcome, count in sorted(load.outcomes().items()):
        report.add(drill, f"answers: {outcome}", count)
    admitted = {
        each.request_id: each for each in load.answers if each.request_id and each.status == 200
    }
    records = await stack.records(admitted)
    missing = [each for request_id, each in admitted.items() if request_id not in records]
    report.add(drill, "requests without a terminal record", len(missing), most=0)
    short = [
        each
        for request_id, each in admitted.items()
        if not each.is_complete
        and each.error != "connection_lost"  # with its gateway
        and request_id in records
        and records[request_id].outcome == "completed"
    ]
    report.add(drill, "answers shorter than their record", len(short), most=0)
    what = "answers with anything stale, twice or missing"
    report.add(drill, what, len(load.wrong()), most=0)


async def _of_gateways(stack: Stack, name: str) -> float:
    """A metric's sum over all gateways."""
    return sum([await metric(gateway.url, name) for gateway in stack.gateways])


async def _completes(load: Load, since: float) -> bool:
    return any(each.is_complete and each.begun_at > since for each in load.answers[-50:])


def _seconds_to_full_rate(load: Load, killed_at: float, before: float) -> float:
    """From the kill to the first second that is as good as those before, within 5 %."""
    tenths = range(5, 130)
    recovered = (
        n / 10
        for n in tenths
        if load.rate(killed_at + n / 10, killed_at + n / 10 + 1) >= 0.95 * before
    )
    return next(recovered, float("inf"))


def _p99_seconds(load: Load, begin: float, end: float) -> float:
    """Of the streams that began between two moments."""
    streams = [each for each in load.answers if begin <= each.begun_at < end]
    return quantiles([each.ended_at - each.begun_at for each in streams], n=100)[98]


async def _compare_budget(stack: Stack, load: Load, drill: str, report: Report) -> None:
    """The month's counter against the records it was rebuilt from, and those since."""
    from asgiref.sync import sync_to_async

    now = datetime.now(UTC)
    month = keys.tenant_month(stack.tenant_id, now.year * 100 + now.month)
    counted = int(await stack.redis.hget(month, "tenant:tokens") or 0)
    on_record = await sync_to_async(_tokens_on_record)(stack.tenant_id)
    off = abs(counted - on_record) / on_record * 100
    report.add(drill, "month's tokens on record", on_record)
    report.add(drill, "budget counter off the records by", off, "%", most=5)


def _tokens_on_record(tenant_id: str) -> int:
    from django.db.models import F, Sum

    from inference.models import UsageRecord
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        ran = UsageRecord.objects.filter(tenant_id=tenant_id).exclude(
            outcome__in=("refused", "expired")
        )
        total = ran.aggregate(tokens=Sum(F("prompt_tokens") + F("completion_tokens")))["tokens"]
        return int(total or 0)
