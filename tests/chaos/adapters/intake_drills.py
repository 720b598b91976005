"""On the way in: who validates is killed, the store is away, disks are full."""

import asyncio
import os
import resource
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.chaos.adapters.books import check_everything, compare
from tests.chaos.adapters.drills import ask_at_once, steady_load
from tests.chaos.adapters.stack import AdapterStack, Forgotten
from tests.chaos.adapters.stores import FolderStore
from tests.chaos.adapters.tenant import DONE, AdapterTenant, code_of, packed
from tests.chaos.drills import _end
from tests.chaos.load import Answer, Load, Target
from tests.chaos.processes import until
from tests.chaos.report import Report

LARGE_RANK = 64  # 4.8 MB
PARTS = 3
# A validator that is killed is retried by Celery after seconds. A Celery process that is killed has
# taken its messages with it: a beat of a minute asks again for what is older than 150 s.
RETRIED_SECONDS = 60
ASKED_AGAIN_SECONDS = 260
GIVEN_UP_SECONDS = 600
# While the store is away nothing takes longer than this to say so: four tries of the store's client
# within 15 s, and the last of them.
TOLD_SECONDS = 40
HEALED_SECONDS = 60
# No file of a process beyond it: less than a large adapter, more than a small one, or a log. Of a
# worker, whose outbox writes 4.1 MB before SQLite begins its log anew: still less than a large one.
DISK_BYTES = 1_500_000
WORKER_DISK_BYTES = 4_500_000
# The codes of a 503 that says that the store or the disk is not to be had now.
TYPED = {"blob_store_away", "blob_store_full", "disk_full"}


async def kill_the_validator(stack: AdapterStack, report: Report) -> None:
    """kill -9 of the process that has an upload looked at, then of the one in the jail. What the
    first had taken is seen to later: see `end_what_was_forgotten`."""
    acme, globex = stack.tenants
    good = await acme.add_version(packed(22, rank=LARGE_RANK))
    bad = await globex.add_version(b"no archive at all")
    jailed = await stack.until_jailed()
    await stack.kill_validator()
    ended = asyncio.create_task(_until_ended((acme, good), (globex, bad)))
    stack.forgotten = Forgotten(good=good, bad=bad, seconds=ended)
    await until(lambda: _is_gone(jailed))
    await stack.start_validator()

    drill = "kill -9 of the validator in its jail"
    number = await acme.add_version(packed(21, rank=LARGE_RANK))
    os.kill(await stack.until_jailed(), signal.SIGKILL)
    seconds = await acme.until_ready(number, RETRIED_SECONDS)
    report.add(drill, "until the version was ready all the same", seconds, "s", most=60)
    await check_everything(stack, drill, report)


async def end_what_was_forgotten(stack: AdapterStack, report: Report) -> None:
    """What the killed process had taken with it is asked for again by a beat."""
    if stack.forgotten is None:
        await kill_the_validator(stack, report)
    assert stack.forgotten is not None
    drill = "kill -9 of the process that validates"
    acme, globex = stack.tenants
    seconds = await stack.forgotten.seconds
    what = "until both of its uploads had their end"
    report.add(drill, what, seconds, "s", most=ASKED_AGAIN_SECONDS)
    is_ready = await acme.state(stack.forgotten.good) == ("ready", "")
    is_refused = await globex.state(stack.forgotten.bad) == ("refused", "archive_kind")
    wrong = 2 - is_ready - is_refused
    report.add(drill, "uploads that ended otherwise than they should", wrong, most=0)
    stack.forgotten = None
    await check_everything(stack, drill, report)


async def _until_ended(*versions: tuple[AdapterTenant, int]) -> float:
    async def have_ended() -> bool:
        states = [await tenant.state(number) for tenant, number in versions]
        return all(state in DONE for state, _ in states)

    return await until(have_ended, GIVEN_UP_SECONDS, every_seconds=0.5)


async def lose_the_store(stack: AdapterStack, report: Report) -> None:
    """The store is away while an upload comes, while one is looked at, while workers fetch."""
    drill = f"store away: {'a folder' if isinstance(stack.store, FolderStore) else 'S3'}"
    acme, globex = stack.tenants
    load = await steady_load(stack)
    data = packed(31, rank=LARGE_RANK)
    size = -(-len(data) // PARTS)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    upload_id = await acme.begin(len(data))
    (await acme.send(upload_id, pieces[0])).raise_for_status()
    await stack.prefetch_nothing()
    nobody_has = await globex.add_ready_version(packed(32))
    waiting = await globex.upload(packed(33))

    await stack.store.away()
    since = time.monotonic()
    refused = await acme.send(upload_id, pieces[1])
    _add_refusal(refused, "a part", time.monotonic() - since, drill, report)
    unlooked = await globex.add_version_of(waiting)
    since = time.monotonic()
    answers = await ask_at_once(stack, load, globex.target(nobody_has))
    took = time.monotonic() - since
    report.add(drill, "until requests for what cannot be fetched ended", took, "s", most=75)
    typed = [each for each in answers if _is_told_to_come_again(each)]
    report.add(drill, "of them not refused typed", len(answers) - len(typed), most=0)
    state, code = await globex.state(unlooked)
    report.add(drill, f"an upload is {state} {code} meanwhile", state == "refused", most=0)

    await stack.store.back()
    since = time.monotonic()
    await until(lambda: _completes(stack, load, globex.target(nobody_has)), HEALED_SECONDS)
    took = time.monotonic() - since
    report.add(drill, "back: until requests had the adapter", took, "s", most=HEALED_SECONDS)
    lost = 1 - len(await acme.parts(upload_id))
    report.add(drill, "parts that had come and were lost", lost, most=0)
    took = await _go_on(acme, upload_id, pieces)
    report.add(drill, "back: until the upload was a ready version", took, "s", most=HEALED_SECONDS)
    await globex.until_ready(unlooked, ASKED_AGAIN_SECONDS)
    took = time.monotonic() - since
    what = "back: until what waited was ready"
    report.add(drill, what, took, "s", most=ASKED_AGAIN_SECONDS)
    await _end(stack, load, drill, report)
    untouched = [each for each in load.answers if not each.is_complete]
    report.add(drill, "other streams that ended otherwise", len(untouched), most=0)
    await compare(stack, load.answers, drill, report)


async def kill_the_control_plane(stack: AdapterStack, report: Report) -> None:
    """kill -9 of the web process while a part of an upload comes; workers fetch from it too."""
    drill = "kill -9 of the web process"
    acme, globex = stack.tenants
    load = await steady_load(stack)
    data = packed(41, rank=LARGE_RANK)
    pieces = [data[: len(data) // 2], data[len(data) // 2 :]]
    upload_id = await acme.begin(len(data))
    await acme.send(upload_id, pieces[0])
    await stack.prefetch_nothing()
    nobody_has = await globex.add_ready_version(packed(42))
    cut = asyncio.create_task(_slow_part(acme, upload_id, pieces[1]))
    await asyncio.sleep(0.5)
    await stack.kill_web()
    report.add(drill, "parts that were answered all the same", await cut, most=0)
    if isinstance(stack.store, FolderStore):
        answers = await ask_at_once(stack, load, globex.target(nobody_has))
        typed = [each for each in answers if _is_told_to_come_again(each)]
        what = "requests for what cannot be fetched, not refused typed"
        report.add(drill, what, len(answers) - len(typed), most=0)
    await stack.start_web()
    since = time.monotonic()
    await until(lambda: _completes(stack, load, globex.target(nobody_has)), HEALED_SECONDS)
    took = time.monotonic() - since
    report.add(drill, "back: until requests had the adapter", took, "s", most=HEALED_SECONDS)
    took = await _go_on(acme, upload_id, pieces)
    report.add(drill, "back: until the upload was a ready version", took, "s", most=HEALED_SECONDS)
    await _end(stack, load, drill, report)
    await compare(stack, load.answers, drill, report)


async def fill_disks(stack: AdapterStack, report: Report) -> None:
    """No disk takes a large adapter: not the one where parts come in, nor the store's, nor a
    worker's."""
    acme, globex = stack.tenants
    load = await steady_load(stack)

    drill = "disk full where parts come in"
    data = packed(51, rank=LARGE_RANK)
    upload_id = await acme.begin(len(data))
    with _full_disk(stack.web):
        since = time.monotonic()
        refused = await acme.send(upload_id, data)
        _add_refusal(refused, "a part", time.monotonic() - since, drill, report)
        small = await acme.add_version(packed(52))
    took = await _go_on(acme, upload_id, [data])
    report.add(drill, "space: until the upload was a ready version", took, "s", most=60)
    await acme.until_ready(small)

    drill = "disk full where uploads are validated and stored"
    with _full_disk(stack.validator):
        number = await globex.add_version(packed(53, rank=LARGE_RANK, is_flat=True))
        await asyncio.sleep(8)
        state, code = await globex.state(number)
        report.add(drill, f"an upload is {state} {code} meanwhile", state != "validating", most=0)
    since = time.monotonic()
    await globex.until_ready(number, ASKED_AGAIN_SECONDS)
    report.add(drill, "space: until it was ready", time.monotonic() - since, "s", most=60)

    drill = "disk full where uploads are unpacked"
    with _full_disk(stack.validator):
        unpacked = await globex.add_version(packed(54, rank=LARGE_RANK))
        await asyncio.sleep(8)
        state, code = await globex.state(unpacked)
        report.add(drill, f"an upload is {state} {code} meanwhile", state != "validating", most=0)
    since = time.monotonic()
    await globex.until_ready(unpacked, ASKED_AGAIN_SECONDS)
    report.add(drill, "space: until it was ready", time.monotonic() - since, "s", most=60)

    drill = "disk full at the workers' caches"
    await stack.prefetch_nothing()
    number = await globex.add_ready_version(packed(55, rank=LARGE_RANK))
    small = await acme.add_ready_version(packed(56))
    workers = [worker.process for worker in stack.workers]
    with _full_disk(*workers, most_bytes=WORKER_DISK_BYTES):
        answers = await ask_at_once(stack, load, globex.target(number))
        typed = [each for each in answers if _is_told_to_come_again(each)]
        what = "requests for what has no room, not refused typed"
        report.add(drill, what, len(answers) - len(typed), most=0)
        answers = await ask_at_once(stack, load, acme.target(small))
        ended = [each for each in answers if not each.is_complete]
        report.add(drill, "requests for what has room that did not end well", len(ended), most=0)
    since = time.monotonic()
    await until(lambda: _completes(stack, load, globex.target(number)), HEALED_SECONDS)
    took = time.monotonic() - since
    report.add(drill, "space: until requests had the adapter", took, "s", most=HEALED_SECONDS)
    await _end(stack, load, drill, report)
    broken = [each for each in load.answers if not each.is_complete]
    report.add(drill, "other streams that ended otherwise", len(broken), most=0)
    await compare(stack, load.answers, drill, report)


def _is_told_to_come_again(answer: Answer) -> bool:
    """Refused for its adapter, and told when to ask again; a stream that has waited for a worker
    has its headers already, and only the sentence says so."""
    return answer.error == "adapter_unavailable" and (answer.retry_after or answer.status == 200)


def _add_refusal(
    answer: httpx.Response, what: str, seconds: float, drill: str, report: Report
) -> None:
    report.add(drill, f"until {what} was refused", seconds, "s", most=TOLD_SECONDS)
    code = code_of(answer)
    is_typed = answer.status_code == 503 and code in TYPED and "retry-after" in answer.headers
    report.add(
        drill, f"{what} refused otherwise: {answer.status_code} {code}", not is_typed, most=0
    )


async def _go_on(tenant: AdapterTenant, upload_id: str, pieces: list[bytes]) -> float:
    """Send what is missing of an upload that was cut, and have it validated; return how long that
    took."""
    since = time.monotonic()
    have = await tenant.parts(upload_id)
    for piece in pieces[len(have) :]:
        (await tenant.send(upload_id, piece)).raise_for_status()
    file_id = await tenant.complete(upload_id, await tenant.parts(upload_id))
    await tenant.until_ready(await tenant.add_version_of(file_id))
    return time.monotonic() - since


async def _slow_part(tenant: AdapterTenant, upload_id: str, data: bytes) -> bool:
    """Whether a part was answered that is sent for ever."""
    try:
        await tenant.send_slowly(upload_id, data)
    except httpx.TransportError:
        return False
    return True


async def _completes(stack: AdapterStack, load: Load, target: Target) -> bool:
    answers = await ask_at_once(stack, load, target)
    return all(each.is_complete for each in answers)


async def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextmanager
def _full_disk(*processes: Process, most_bytes: int = DISK_BYTES) -> Iterator[None]:
    """The kernel lets them write no file beyond so many bytes, with `EFBIG`; so too what they
    start."""
    before = [resource.prlimit(each.pid, resource.RLIMIT_FSIZE) for each in processes]
    for process, (_, hard) in zip(processes, before, strict=True):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        for process, limits in zip(processes, before, strict=True):
            if process.returncode is None:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
