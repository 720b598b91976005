"""Weather: a Redis that stands still, a Redis without memory, wall clocks that are set."""

import asyncio
import json
import os
import signal
import ssl
import time
from collections import Counter

import httpx

from gpu_workers.protocol import keys
from tests.chaos.drills import _end, _load, _steady_load
from tests.chaos.load import TOKENS, Load
from tests.chaos.processes import until
from tests.chaos.report import Report
from tests.chaos.stack import MODEL, Stack

STALLS_SECONDS = (3, 10, 30)
FULL_RATE_SECONDS = 10
# As many clients as can never all have a slot, each with a prompt of some bytes; what waits is more
# than what Redis is made to lack.
FLOOD = 700
FLOOD_BYTES = 6_000
ENOUGH_WAIT = 250
LACKING_BYTES = 750_000
OUT_OF_MEMORY_SECONDS = 15.0
# One for all clients, as each would take a moment to read the certificates that none needs.
_TLS = ssl.create_default_context()


async def stall_redis(stack: Stack, report: Report) -> None:
    """SIGSTOP of the dispatch Redis for 3, 10 and 30 s under 200 streams: nobody has died."""
    for seconds in STALLS_SECONDS:
        drill = f"Redis stands still for {seconds} s"
        load = await _steady_load(stack)
        stopped_at = time.monotonic()
        before = load.rate(stopped_at - 4, stopped_at)
        stack.servers.pause_dispatch_redis()
        await asyncio.sleep(seconds)
        stack.servers.resume_dispatch_redis()
        back_at = time.monotonic()
        await asyncio.sleep(14)
        report.add(drill, "rate before", before, "tokens/s")
        again = _seconds_to_steady_rate(load, back_at, before)
        report.add(drill, "seconds to the full rate again", again, "s", most=FULL_RATE_SECONDS)
        await _end(stack, load, drill, report)
        then = [a for a in load.answers if a.begun_at < stopped_at < a.ended_at]
        report.add(drill, "streams that were open then", len(then))
        broken = [each for each in then if not each.is_complete]
        report.add(drill, "and that did not go on to their end", len(broken), most=0)
        await _compare_with_record(stack, load, drill, report)
        _compare_exits(stack, drill, report)


async def fill_memory(stack: Stack, report: Report) -> None:
    """`maxmemory` is hit under load: newcomers are refused typed, what is there drains."""
    drill = "Redis without memory"
    load = await _load(stack, streams=40)
    flood = Flood(stack)
    flood.start()
    await until(lambda: _is_crowded(stack))
    used = int((await stack.redis.info("memory"))["used_memory"])
    waiting = await stack.redis.zcard(keys.pool_queue(MODEL))
    await stack.redis.config_set("maxmemory", used - LACKING_BYTES)
    since = time.monotonic()
    await asyncio.sleep(OUT_OF_MEMORY_SECONDS)
    flood.stop()
    report.add(drill, "requests that waited then", waiting)
    report.add(drill, "newcomers answered before", flood.codes(0)["200"])
    seconds = await until(lambda: _has_memory(stack, used - LACKING_BYTES))
    report.add(drill, "until Redis had memory again, once nobody came", seconds, "s", most=60)
    await flood.wait()
    await stack.redis.config_set("maxmemory", 0)
    refused = {code: n for code, n in flood.codes(since).items() if code != "200"}
    for code, count in sorted(refused.items()):
        report.add(drill, f"newcomers refused: {code}", count)
    untyped = sum(n for code, n in refused.items() if not code.startswith(("503 ", "429 ")))
    report.add(drill, "newcomers refused without a type", untyped, most=0)
    report.add(drill, "503 without Retry-After", flood.rude, most=0)
    await _end(stack, load, drill, report)
    _compare_exits(stack, drill, report)


async def step_clocks(stack: Stack, report: Report) -> None:
    """The wall clocks of workers and gateways are set six hours back, and forward again."""
    drill = "wall clocks set by 6 h"
    load = await _steady_load(stack)
    before = load.rate(time.monotonic() - 4, time.monotonic())
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2, signal.SIGUSR1):
        processes = [each.process for each in stack.workers]
        for process in processes + [each.process for each in stack.gateways]:
            os.kill(process.pid, number)
        await asyncio.sleep(6)
    after = load.rate(time.monotonic() - 4, time.monotonic())
    report.add(drill, "rate before", before, "tokens/s")
    report.add(drill, "rate before to that after", before / after, most=1.05)
    await _end(stack, load, drill, report)
    broken = [each for each in load.answers if not each.is_complete]
    report.add(drill, "streams that did not go on to their end", len(broken), most=0)
    await _compare_with_record(stack, load, drill, report)
    await _compare_times(stack, load, drill, report)
    _compare_exits(stack, drill, report)


def _seconds_to_steady_rate(load: Load, back_at: float, before: float) -> float:
    """From Redis' return to the first three seconds that are as good as those before, within 5 %.
    Not before the third second: until then comes what had been held up."""
    recovered = (
        n / 10
        for n in range(20, 111)
        if load.rate(back_at + n / 10, back_at + n / 10 + 3) >= 0.95 * before
    )
    return next(recovered, float("inf"))


async def _compare_with_record(stack: Stack, load: Load, drill: str, report: Report) -> None:
    whole = [each for each in load.answers if each.is_complete and each.request_id]
    records = await stack.records(each.request_id for each in whole if each.request_id)
    off = [
        each
        for each in whole
        if each.request_id in records and records[each.request_id].completion_tokens != TOKENS
    ]
    report.add(drill, "whole answers billed as something else", len(off), most=0)


async def _compare_times(stack: Stack, load: Load, drill: str, report: Report) -> None:
    """A record's times, by whichever clocks: none may be hours off."""
    answers = {each.request_id: each for each in load.answers if each.request_id}
    records = await stack.records(answers)
    now, now_s = time.monotonic(), time.time()
    off = [
        abs(record.finished_at.timestamp() - (now_s - (now - answers[request_id].ended_at)))
        for request_id, record in records.items()
    ]
    report.add(drill, "a record's end off the client's by at most", max(off), "s", most=60)
    ttft = max(record.ttft_ms or 0 for record in records.values()) / 1000
    report.add(drill, "longest time to a first token on record", ttft, "s", most=10)


def _compare_exits(stack: Stack, drill: str, report: Report) -> None:
    gone = [each for each in stack.workers if each.process.returncode is not None]
    report.add(drill, "workers that exited", len(gone), most=0)


async def _is_crowded(stack: Stack) -> bool:
    return int(await stack.redis.zcard(keys.pool_queue(MODEL))) >= ENOUGH_WAIT


async def _has_memory(stack: Stack, most: int) -> bool:
    return int((await stack.redis.info("memory"))["used_memory"]) < most


class Flood:
    """Clients that ask again and again, without streaming, with a prompt of some bytes."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._answers: list[tuple[float, str]] = []
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.rude = 0  # 503 without Retry-After

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(FLOOD)]

    def stop(self) -> None:
        """Ask no more; what was asked is answered yet."""
        self._is_stopping = True

    async def wait(self) -> None:
        await asyncio.gather(*self._tasks)

    def codes(self, since: float) -> Counter[str]:
        """Return how often each status and code was answered since then."""
        return Counter(code for at, code in self._answers if at >= since)

    async def _ask(self, number: int) -> None:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{number} ".ljust(FLOOD_BYTES, "x")}],
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        ports = self._stack.ports
        url = f"http://127.0.0.1:{ports[number % len(ports)]}/v1/chat/completions"
        # Kept alive, a connection may end just as its next request is sent.
        headers = {"Authorization": f"Bearer {self._stack.key}", "Connection": "close"}
        async with httpx.AsyncClient(headers=headers, timeout=90, verify=_TLS) as client:
            while not self._is_stopping:
                try:
                    answer = await client.post(url, json=body)
                except httpx.TransportError as error:
                    self._note(type(error).__name__)
                    await asyncio.sleep(1)
                    continue
                self._note(_code_of(answer))
                if answer.status_code == 503 and "retry-after" not in answer.headers:
                    self.rude += 1
                await asyncio.sleep(float(answer.headers.get("retry-after", 0)))

    def _note(self, code: str) -> None:
        self._answers.append((time.monotonic(), code))


def _code_of(answer: httpx.Response) -> str:
    if answer.status_code == 200:
        return "200"
    try:
        return f"{answer.status_code} {json.loads(answer.text)['error']['code']}"
    except (ValueError, KeyError):
        return f"untyped {answer.status_code}"
