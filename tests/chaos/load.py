"""Streams in closed loop, each compared with what an undisturbed one says."""

import asyncio
import json
import re
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.load.http_exchange import CHUNK_HEAD
from tests.support.places import LOOPBACK

PROMPTS = [f"Tell me of river {number}." for number in range(8)]
TOKENS = 100
_TOKEN = re.compile(rb'"content":"[^"]')
_REQUEST_ID = re.compile(rb"x-request-id: ([0-9a-f]{32})")
_ADAPTER = re.compile(rb"x-penstock-adapter: ([^\r]+)")
_SILENCE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Target:
    """Who asks for what: a key, and a model or adapter as its clients name it."""

    key: str
    model: str


@dataclass(kw_only=True, slots=True)
class Answer:
    """What came of one request for a model, or for an adapter, of which `adapter` says the version.
    `error` is its typed code, or what became of the connection."""

    prompt: str
    model: str = ""
    adapter: str = ""
    request_id: str | None = None
    status: int | None = None
    text: str = ""
    is_complete: bool = False
    error: str | None = None
    retry_after: bool = False
    begun_at: float = field(default_factory=time.monotonic)
    ended_at: float = field(default_factory=time.monotonic)

    @property
    def answered_by(self) -> tuple[str, str]:
        """What its text is a function of: the version or model, and the prompt."""
        return self.adapter or self.model, self.prompt


class Load:
    """`streams` at once over the gateways' ports, each for one of the targets, until `stop`."""

    def __init__(self, ports: list[int], *targets: Target, streams: int) -> None:
        self.ports = ports
        self.answers: list[Answer] = []
        self._expected: dict[tuple[str, str], str] = {}
        self._targets, self._streams = targets, streams
        self._tokens: deque[tuple[float, int]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def learn(self, *targets: Target) -> None:
        """What each prompt is answered undisturbed, by all targets or by these."""
        asked = (
            self.ask(prompt, self.ports[0], target=target)
            for target in targets or self._targets
            for prompt in PROMPTS
        )
        for answer in await asyncio.gather(*asked):
            if not answer.is_complete:
                raise RuntimeError(f"an undisturbed stream did not end well: {answer}")
            self._expected[answer.answered_by] = answer.text

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._stream(n)) for n in range(self._streams)]

    async def stop(self) -> None:
        """Every stream that is open comes to its end first."""
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    def rate(self, begin: float, end: float) -> float:
        """Tokens a second that clients got between two moments of `time.monotonic`."""
        return sum(n for at, n in self._tokens if begin <= at < end) / (end - begin)

    def outcomes(self) -> Counter[str]:
        return Counter("complete" if each.is_complete else str(each.error) for each in self.answers)

    def wrong(self, answers: Sequence[Answer] | None = None) -> list[Answer]:
        """Those, of all or of these, that say anything else, or anything twice: a whole one has to
        be the expected, a broken one its beginning. What was not learned is not expected."""
        heard = self.answers if answers is None else answers
        return [each for each in heard if not self._is_right(each)]

    def _is_right(self, answer: Answer) -> bool:
        expected = self._expected.get(answer.answered_by, "")
        if answer.is_complete:
            return answer.text == expected
        return expected.startswith(answer.text)

    async def ask(
        self, prompt: str, port: int, *, tokens: int = TOKENS, target: Target | None = None
    ) -> Answer:
        target = target or self._targets[0]
        answer = Answer(prompt=prompt, model=target.model)
        received = bytearray()
        writer = None
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(self.request(prompt, port, tokens, target))
            while data := await asyncio.wait_for(reader.read(65_536), _SILENCE_SECONDS):
                received += data
                if tokens_in := len(_TOKEN.findall(data)):
                    self._tokens.append((time.monotonic(), tokens_in))
        except TimeoutError:
            answer.error = "silence"
        except OSError:
            pass
        finally:
            if writer is not None:
                writer.close()
        read_answer(answer, bytes(received))
        return answer

    def request(
        self, prompt: str, port: int, tokens: int = TOKENS, target: Target | None = None
    ) -> bytes:
        target = target or self._targets[0]
        body = json.dumps(
            {
                "model": target.model,
                "messages": [{"role": "user", "content": prompt}],
                "stream": True,
                "temperature": 0,
                "max_tokens": tokens,
                "ignore_eos": True,
            }
        ).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n"
        head += f"Authorization: Bearer {target.key}\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def _stream(self, number: int) -> None:
        # Not all at once: a whole load that begins and ends in step says nothing of a rate.
        await asyncio.sleep(4 * number / self._streams)
        turn = number
        target = self._targets[number % len(self._targets)]
        while not self._is_stopping:
            prompt, port = PROMPTS[turn % len(PROMPTS)], self.ports[turn % len(self.ports)]
            answer = await self.ask(prompt, port, target=target)
            self.answers.append(answer)
            turn += 1
            if answer.error is not None:
                await asyncio.sleep(0.2)


def read_answer(answer: Answer, received: bytes) -> None:
    answer.ended_at = time.monotonic()
    head, _, body = received.partition(b"\r\n\r\n")
    if (found := re.match(rb"HTTP/1.1 (\d{3})", head)) is None:
        answer.error = answer.error or "connection_lost"
        return
    answer.status = int(found[1])
    answer.retry_after = b"retry-after:" in head
    if (named := _REQUEST_ID.search(head)) is not None:
        answer.request_id = named[1].decode()
    if (named := _ADAPTER.search(head)) is not None:
        answer.adapter = named[1].decode()
    if answer.status != 200:
        answer.error = _code(body[body.find(b"{") : body.rfind(b"}") + 1])
        return
    for line in CHUNK_HEAD.sub(b"", body).split(b"\n"):
        if line == b"data: [DONE]":
            answer.is_complete = True
        elif line.startswith(b"data: {") and line.endswith(b"}"):
            event: dict[str, Any] = json.loads(line[6:])
            if "error" in event:
                answer.error = event["error"]["code"]
            elif event["choices"]:
                answer.text += event["choices"][0]["delta"].get("content") or ""
    if not answer.is_complete:
        answer.error = answer.error or "connection_lost"


def _code(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError):
        return "unreadable"
