"""One program's requests, as its clients send them: streamed or not, left in the middle, wrong."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import httpx
from control_plane.demo.people import demand

from local_stack.demo_traffic.cast import Mistake, Model, Program, questions_for, spoiled
from local_stack.demo_traffic.course import rate

ANSWERED: Final = "answered"
LEFT: Final = "left by their reader"
UNREACHED: Final = "without an answer"

# Of one program; what it would ask beyond them it does not ask.
_MOST_OPEN: Final = 64


class Asking:
    """A program at work. `moment` tells how much of the run is over, 0 to 1; what becomes of each
    request is counted in `outcomes`: answered, left, or the code of its refusal."""

    def __init__(
        self,
        program: Program,
        key: str,
        *,
        http: httpx.AsyncClient,
        names: Mapping[Model, str],
        moment: Callable[[], float],
        outcomes: Counter[str],
        draw: random.Random,
    ) -> None:
        self._program = program
        self._key = key
        self._http = http
        self._names = names
        self._moment = moment
        self._outcomes = outcomes
        self._draw = draw
        self._phase = draw.random()
        self._mistakes = itertools.cycle(Mistake)
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Ask until the run is over, then wait for the answers."""
        try:
            while (moment := self._moment()) < 1.0:
                times = rate(moment, phase=self._phase, floods=self._program.floods)
                await asyncio.sleep(self._draw.expovariate(self._program.per_minute * times / 60.0))
                if len(self._open) < _MOST_OPEN:
                    asked = asyncio.create_task(self._ask())
                    self._open.add(asked)
                    asked.add_done_callback(self._open.discard)
            await asyncio.gather(*self._open)
        finally:
            for asked in self._open:
                asked.cancel()

    async def _ask(self) -> None:
        mistake = None
        if self._draw.random() < self._program.mistakes:
            mistake = next(self._mistakes)
        body = self._body()
        if mistake is not None:
            body = spoiled(body, mistake)
        key = f"{self._key}x" if mistake is Mistake.KEY else self._key
        try:
            self._outcomes[await self._outcome(body, key)] += 1
        except httpx.HTTPError:
            self._outcomes[UNREACHED] += 1

    def _body(self) -> dict[str, Any]:
        program, draw = self._program, self._draw
        [model] = draw.choices(list(program.models), list(program.models.values()))
        body: dict[str, Any] = {
            "model": self._names[model],
            "messages": [{"role": "user", "content": draw.choice(questions_for(model))}],
            "max_tokens": draw.randint(*program.output_tokens),
            "stream": program.streams,
        }
        if program.users:
            [body["user"]] = draw.choices(program.users, demand(program.users))
        if program.features:
            body["metadata"] = {"feature": draw.choice(program.features)}
        return body

    async def _outcome(self, body: dict[str, Any], key: str) -> str:
        leaves_after = None
        if self._draw.random() < self._program.gives_up:
            leaves_after = self._draw.randint(2, 12)
        request = self._http.stream(
            "POST",
            "/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {key}"},
        )
        async with request as answer:
            if answer.status_code >= HTTPStatus.BAD_REQUEST:
                return _code_of(await answer.aread())
            lines = 0
            async for line in answer.aiter_lines():
                if line.startswith('data: {"error"'):
                    return _code_of(line.removeprefix("data: ").encode())
                lines += line.startswith("data: ")
                if leaves_after is not None and lines > leaves_after:
                    return LEFT
        return ANSWERED


def _code_of(refusal: bytes) -> str:
    try:
        error = json.loads(refusal)["error"]
        return str(error["code"] or error["type"])
    except (ValueError, KeyError, TypeError):
        return UNREACHED
