"""Workers and Redis: who answers with adapters is killed, loses what it knew, or finds its disk
changed."""

import asyncio
import time

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from tests.chaos.adapters.books import compare
from tests.chaos.adapters.stack import AdapterStack
from tests.chaos.adapters.tenant import packed
from tests.chaos.drills import _end
from tests.chaos.load import PROMPTS, Answer, Load, Target
from tests.chaos.processes import SimWorker, until
from tests.chaos.report import Report

STREAMS = 60
STEADY_SECONDS = 6.0
ASKED_AT_ONCE = 8
# A worker looks what is on its disk as it starts, and tells it once it has registered.
KNOWN_AGAIN_SECONDS = 20


async def kill_a_worker(stack: AdapterStack, report: Report) -> None:
    """kill -9 of a worker that streams with adapters, and of one that loads one."""
    drill = "kill -9 of a worker with adapters"
    acme = stack.tenants[0]
    await stack.prefetch_nothing()
    number = await acme.add_ready_version(packed(11))
    load = await steady_load(stack)
    streaming = stack.workers[0]
    await stack.kill_worker(streaming)
    asked = asyncio.create_task(ask_at_once(stack, load, acme.target(number)))
    loading = await _who_loads(stack, await acme.opaque_name(number))
    await stack.kill_worker(loading)
    answers = await asked
    await load.learn(acme.target(number))
    report.add(drill, "requests for what the second of them loaded", len(answers))
    report.add(drill, "of them with another's text", len(load.wrong(answers)), most=0)
    since = time.monotonic()
    for worker in (streaming, loading):
        await stack.add_worker(name=worker.name)
    await until(stack.is_ready)
    await until(lambda: _have_told_their_disks(stack))
    seconds = time.monotonic() - since
    what = "from their start until both had told again what they keep"
    report.add(drill, what, seconds, "s", most=KNOWN_AGAIN_SECONDS)
    await asyncio.sleep(STEADY_SECONDS)
    await _end(stack, load, drill, report)
    whole = load.answers + answers
    _count_broken(whole, drill, report)
    await compare(stack, whole, drill, report)


async def corrupt_caches(stack: AdapterStack, report: Report) -> None:
    """A byte of everything that workers keep on their disks is another one, and they restart."""
    drill = "corrupt caches"
    load = await _learned_load(stack)
    await ask_at_once(stack, load, *_adapters(stack))
    names = [worker.name for worker in stack.workers]
    for worker in list(stack.workers):
        await stack.kill_worker(worker)
    corrupted = [path for name in names for path in stack.sealed(name)]
    for path in corrupted:
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
    report.add(drill, "files changed", len(corrupted))
    for name in names:
        await stack.add_worker(name=name)
    await until(stack.is_ready)
    await until(lambda: _have_told_their_disks(stack))
    answers = await ask_at_once(stack, load, *_adapters(stack))
    report.add(drill, "requests", len(answers))
    report.add(drill, "of them with another's text", len(load.wrong(answers)), most=0)
    _count_broken(answers, drill, report)
    found = sum(
        stack.processes.log_of(worker.process).count("cached_adapter_corrupt")
        for worker in stack.workers
    )
    report.add(drill, "files that workers found so and fetched again", found)
    report.add(drill, "files that nobody found so", 0 if found else 1, most=0)
    await _end(stack, load, drill, report)
    await compare(stack, answers, drill, report)


async def empty_redis(stack: AdapterStack, report: Report) -> None:
    """FLUSHALL of the dispatch Redis while adapters answer."""
    drill = "Redis emptied while adapters answer"
    load = await steady_load(stack)
    sources = await stack.redis.hlen(keys.pool_adapter_sources(stack.model))
    policies = await stack.redis.hlen(keys.policy_adapters())
    opaque = [await tenant.opaque_name(1) for tenant in stack.tenants]
    await stack.redis.flushall()
    emptied_at = time.monotonic()

    async def is_told_again() -> bool:
        counts = (
            await stack.redis.hlen(keys.pool_adapter_sources(stack.model)) >= sources,
            await stack.redis.hlen(keys.policy_adapters()) >= policies,
            await stack.redis.exists(keys.pool_adapter_base(stack.model)),
        )
        return all(counts) and all([await _is_held(stack, name) for name in opaque])

    seconds = await until(is_told_again)
    report.add(drill, "until sources, policies and holders were there again", seconds, "s", most=20)
    await until(lambda: _adapters_complete(load, emptied_at))
    what = "until requests for both tenants' adapters that came then were complete, 5 s their own"
    report.add(drill, what, time.monotonic() - emptied_at, "s", most=25)
    await asyncio.sleep(STEADY_SECONDS)
    await _end(stack, load, drill, report)
    await compare(stack, load.answers, drill, report)


async def steady_load(stack: AdapterStack) -> Load:
    """Streams for the base, and for the adapters of both tenants."""
    load = await _learned_load(stack)
    load.start()
    await asyncio.sleep(STEADY_SECONDS)
    return load


async def ask_at_once(stack: AdapterStack, load: Load, *targets: Target) -> list[Answer]:
    """Streams beside the load, some for each of the targets."""
    return await asyncio.gather(
        *(
            load.ask(PROMPTS[turn], stack.ports[turn % len(stack.ports)], target=target)
            for target in targets
            for turn in range(ASKED_AT_ONCE)
        )
    )


async def _learned_load(stack: AdapterStack) -> Load:
    load = Load(stack.ports, stack.target, *_adapters(stack), streams=STREAMS)
    await load.learn()
    return load


def _adapters(stack: AdapterStack) -> list[Target]:
    return [tenant.target() for tenant in stack.tenants]


async def _who_loads(stack: AdapterStack, opaque_name: str) -> SimWorker:
    """The worker that dispatch has told to get an adapter, or that fetches it, before it has it."""
    found: list[SimWorker] = []

    async def does_any() -> bool:
        levels = await stack.levels(opaque_name)
        found[:] = [each for each in stack.workers if levels.get(each.name, 9) <= AdapterLevel.DISK]
        return bool(found)

    await until(does_any)
    return found[0]


async def _have_told_their_disks(stack: AdapterStack) -> bool:
    return all(
        [
            await stack.holds(worker.name, path.name)
            for worker in stack.workers
            for path in stack.sealed(worker.name)
        ]
    )


async def _is_held(stack: AdapterStack, opaque_name: str) -> bool:
    return any(level >= AdapterLevel.DISK for level in (await stack.levels(opaque_name)).values())


async def _adapters_complete(load: Load, since: float) -> bool:
    late = [each for each in load.answers if each.is_complete and each.begun_at > since]
    return len({each.adapter for each in late if each.adapter}) == 2


def _count_broken(answers: list[Answer], drill: str, report: Report) -> None:
    broken = [each for each in answers if not each.is_complete]
    for each in broken[:10]:
        print(f"    {each.model} {each.adapter}: {each.status} {each.error}", flush=True)
    report.add(drill, "streams that did not go on to their end", len(broken), most=0)
