"""Sends random legal extremes to a real stack with the real vLLM, and watches three streams.

    python -m tests.benchmarks.extremes --requests 5000

Another tenant keeps three streams open meanwhile. The bar: none of them stands still for a second
or breaks, and every request gets an answer or a typed refusal. What ran when a stream stood still
is printed, with how long of that the machine and this program stood still by themselves, and
`--only NUMBER` sends one of them alone.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx
from websockets.asyncio.client import connect

from tests.benchmarks.extremes.legal import CHAT, LegalRequest, draw
from tests.benchmarks.extremes.standstill import Standstill, seconds_within
from tests.benchmarks.extremes.victims import Gap, Victims
from tests.benchmarks.targets import bars
from tests.support.live_stack import run_live_stack
from tests.support.polling import eventually
from tests.support.stack_addresses import LiveStack

GAP_BAR_SECONDS: Final = 1.0
SLOTS: Final = 64
_SECONDS: Final = 180.0
_LEFT: Final = "left"
_LAST_BYTES: Final = 2_000
_HUNG_SECONDS: Final = 30.0
_MESSAGE: Final = 60
_CODES_OF_FAULTS: Final = ("internal_error", "worker_lost", "attempts_exhausted", "engine_failed")
_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One request that was sent. Times of `time.perf_counter`."""

    request: LegalRequest
    began: float
    ended: float
    outcome: str


@dataclass(kw_only=True)
class Fuzz:
    stack: LiveStack
    seed: int
    numbers: list[int]
    at_once: int
    ended: list[Ended] = field(default_factory=list)
    standstill: Standstill = field(default_factory=Standstill)

    async def run(self) -> Victims:
        """Send all requests while the victims stream; return the victims."""
        victims = Victims(url=self.stack.url, api_key=self.stack.globex_key, model=self.stack.model)
        watched = asyncio.create_task(victims.run())
        await eventually(lambda: victims.ended, _SECONDS)
        victims.gaps.clear()
        waiting = list(reversed(self.numbers))
        headers = {"Authorization": f"Bearer {self.stack.acme_key}"}
        async with (
            self.standstill,
            httpx.AsyncClient(base_url=self.stack.url, headers=headers, timeout=_SECONDS) as client,
        ):
            attacks = [
                asyncio.create_task(self._attack(client, waiting)) for _ in range(self.at_once)
            ]
            while not all(each.done() for each in attacks):
                await asyncio.wait(attacks, timeout=1)
                if time.perf_counter() - victims.heard_at > _HUNG_SECONDS:
                    print("The victims hear nothing any more.", file=sys.stderr)
                    for each in attacks:
                        each.cancel()
            await asyncio.gather(*attacks, return_exceptions=True)
        watched.cancel()
        await asyncio.gather(watched, return_exceptions=True)
        return victims

    async def _attack(self, client: httpx.AsyncClient, waiting: list[int]) -> None:
        while waiting:
            # In a thread, as megabytes are drawn for seconds and the victims are heard in this one.
            request = await asyncio.to_thread(draw, self.seed, waiting.pop(), self.stack.model)
            body = await asyncio.to_thread(json.dumps, request.body)
            began = time.perf_counter()
            send = self._over_websocket if request.over_websocket else self._over_http
            outcome = "under way at the end"
            try:
                async with asyncio.timeout(request.patience):
                    outcome = await send(client, request, body)
            except TimeoutError:
                outcome = _LEFT
            except (httpx.HTTPError, OSError) as error:
                outcome = f"no answer: {type(error).__name__}"
            finally:
                self.ended.append(
                    Ended(request=request, began=began, ended=time.perf_counter(), outcome=outcome)
                )
            if len(self.ended) % 100 == 0:
                print(f"{len(self.ended)} sent", file=sys.stderr, flush=True)

    async def _over_http(self, client: httpx.AsyncClient, request: LegalRequest, body: str) -> str:
        headers = {"Content-Type": "application/json"}
        async with client.stream(
            "POST", request.path, content=body.encode(), headers=headers
        ) as response:
            if response.status_code != 200:
                return f"{response.status_code} {_code_of(await response.aread())}"
            last = b""
            async for part in response.aiter_bytes():
                last = (last + part)[-_LAST_BYTES:]
            is_whole = not request.body["stream"] or last.endswith(b"data: [DONE]\n\n")
            _, _, event = last.rpartition(b"data: ")
            return "200" if is_whole else f"200, then {_code_of(event)}"

    async def _over_websocket(
        self, client: httpx.AsyncClient, request: LegalRequest, body: str
    ) -> str:
        address = f"{self.stack.url.replace('http', 'ws', 1)}/ws/v1/stream"
        api = "chat.completions" if request.path == CHAT else "completions"
        authorization = {"Authorization": client.headers["authorization"]}
        async with connect(address, additional_headers=authorization, max_size=None) as socket:
            await socket.send(f'{{"type":"request","id":"a","api":"{api}","body":{body}}}')
            while True:
                answer: dict[str, Any] = json.loads(await socket.recv())
                if answer["type"] == "done":
                    return "200"
                if answer["type"] == "error":
                    return f"websocket {_code_of(json.dumps(answer).encode())}"

    def running_at(self, gap: Gap) -> list[Ended]:
        """Return the requests that were under way during a gap, the youngest first."""
        running = [
            each for each in self.ended if each.began < gap.at and each.ended > gap.at - gap.seconds
        ]
        return sorted(running, key=lambda each: -each.began)


def _code_of(answer: bytes) -> str:
    """Return the code of an error, and what is odd about it."""
    try:
        error = json.loads(answer)["error"]
    except (ValueError, KeyError, TypeError):
        return f"unreadable: {answer[:100]!r}"
    size = "" if len(answer) < _LAST_BYTES else f" in {len(answer)} bytes"
    return f"{error['code']}{size}: {re.sub('[0-9]+', '#', error['message'][:_MESSAGE])}"


def _report(fuzz: Fuzz, victims: Victims) -> list[str]:
    """Print what was found; return what no request may do and one did."""
    outcomes = Counter(each.outcome for each in fuzz.ended)
    print(f"\n{len(fuzz.ended)} requests, seed {fuzz.seed}, {fuzz.at_once} at once")
    for outcome, count in outcomes.most_common():
        print(f"  {count:6}  {outcome}")
    refused = [each for each in fuzz.ended if not each.outcome.startswith(("200", _LEFT))]
    for name, group in (("answers", fuzz.ended), ("refusals", refused)):
        slow = sorted(group, key=lambda each: each.began - each.ended)[:3]
        for each in slow:
            seconds = each.ended - each.began
            print(f"  slow {name}: {seconds:6.1f} s {_describe(each)}")
    gaps = [gap.seconds for gap in victims.gaps]
    print(
        f"victims: {victims.ended} streams, {len(gaps)} gaps, median {1000 * median(gaps):.0f} ms, "
        f"longest {1000 * max(gaps):.0f} ms (bar {1000 * GAP_BAR_SECONDS:.0f} ms); "
        f"first token at most {max(victims.first_tokens):.1f} s"
    )
    of_machine = [end - begin for begin, end in fuzz.standstill.of_machine]
    print(
        f"the machine stood still {len(of_machine)} times, {max(of_machine, default=0):.1f} s most"
    )
    for gap in victims.longest[:_SHOWN]:
        print(f"  {1000 * gap.seconds:6.0f} ms{_standstill_within(fuzz, gap)}, meanwhile:")
        for each in fuzz.running_at(gap)[:_SHOWN]:
            print(f"      {_describe(each)}")
    for error in victims.broken[:_SHOWN]:
        print(f"  broken: {error}")
    faults = [
        each
        for each in fuzz.ended
        if each.outcome.startswith("no answer")
        or any(code in each.outcome for code in _CODES_OF_FAULTS)
    ]
    for each in faults[:_SHOWN]:
        print(f"  fault: {_describe(each)}")
    found = {"faults": faults, "broken streams of victims": victims.broken}
    return [name for name, each in found.items() if each]


def _standstill_within(fuzz: Fuzz, gap: Gap) -> str:
    begin, still = gap.at - gap.seconds, fuzz.standstill
    of_machine = seconds_within(still.of_machine, begin, gap.at)
    of_program = seconds_within(still.of_program, begin, gap.at)
    return f" (machine {1000 * of_machine:.0f}, this program {1000 * of_program:.0f})"


def _describe(ended: Ended) -> str:
    request = ended.request
    body = request.body
    kind = "websocket" if request.over_websocket else "http"
    small = {name: body[name] for name in ("n", "max_tokens", "stream") if name in body}
    return (
        f"#{request.number} {kind} {request.path.removeprefix('/v1/')} "
        f"{', '.join(request.extremes)} {small} -> {ended.outcome}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, action="append", help="send this number, repeatedly")
    bars.add_option(parser)
    arguments = parser.parse_args()
    numbers = arguments.only or list(range(arguments.requests))
    with run_live_stack(PENSTOCK_MAX_NUM_SEQS=str(SLOTS)) as stack:
        fuzz = Fuzz(stack=stack, seed=arguments.seed, numbers=numbers, at_once=arguments.at_once)
        victims = asyncio.run(fuzz.run())
        broken = _report(fuzz, victims)
    if broken:
        raise SystemExit(f"There are {' and '.join(broken)}.")
    longest = max(gap.seconds for gap in victims.gaps)
    bars.judge(["the longest gap"] if longest >= GAP_BAR_SECONDS else [], arguments)


if __name__ == "__main__":
    main()
