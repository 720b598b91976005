"""Requests of many tenants for their adapters and for the base, and what comes of each."""

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_workers.protocol.messages import Api, Outcome
from inference.errors import InferenceError
from inference.lifecycle.inference_request import InferenceRequest
from tests.benchmarks.many_adapters import questions
from tests.benchmarks.many_adapters.answers import Answer
from tests.benchmarks.many_adapters.cast import Version
from tests.benchmarks.many_adapters.pool import Pool
from tests.support.gateways.cast import MODEL

IN_FLIGHT: Final = 32
BASE_SHARE: Final = 0.2
# Of the requests with an adapter, those that name no version.
_UNPINNED_SHARE: Final = 0.1
_MOST_PROMPT_TOKENS: Final = 2000

# Set by whoever has no more time: what was asked until then is judged.
STOPPED: Final = threading.Event()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request to come. `version` None: the base; its `model` is how it names that."""

    tenant: str
    question: int
    model: str = MODEL
    version: Version | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A request and what it got: the version that answered, as its header says, empty for the base;
    the answer, or why there is none. Times are of `time.monotonic`."""

    ask: Ask
    label: str
    began: float
    ended: float
    answer: Answer | None = None
    error: str = ""
    cached_tokens: int = 0


def zipf(
    versions: Sequence[Version], tenants: Sequence[str], count: int, seed: int = 1
) -> list[Ask]:
    """Return requests in a random order: each version once, by its number, the others by Zipf's law
    with the exponent 1 over a random order of the versions, and the base's between."""
    draw = random.Random(seed)
    base = int(count * BASE_SHARE)
    order = draw.sample(versions, len(versions))
    shares = [1 / rank for rank in range(1, len(order) + 1)]
    often = draw.choices(order, shares, k=max(0, count - base - len(order)))
    asks = [_ask_of(version, draw, version.label) for version in order]
    for version in often:
        is_pinned = draw.random() >= _UNPINNED_SHARE
        asks.append(_ask_of(version, draw, version.label if is_pinned else version.name))
    del asks[count - base :]
    asks += [
        Ask(tenant=draw.choice(tenants), question=draw.randrange(questions.COUNT))
        for _ in range(base)
    ]
    draw.shuffle(asks)
    return asks


def in_turn(versions: Sequence[Version], count: int) -> list[Ask]:
    """Return requests for one version after another, over and over: where fewer are in memory, each
    needs a load."""
    return [
        Ask(
            tenant=version.tenant,
            question=place // len(versions) % questions.COUNT,
            model=version.label,
            version=version,
        )
        for place in range(count)
        for version in (versions[place % len(versions)],)
    ]


def as_base(asks: Iterable[Ask]) -> list[Ask]:
    return [Ask(tenant=ask.tenant, question=ask.question) for ask in asks]


async def run(
    pool: Pool,
    asks: Iterable[Ask],
    *,
    in_flight: int = IN_FLIGHT,
    after_each: Callable[[int], None] = lambda done: None,
) -> list[Answered]:
    """Ask all, so many at a time, in order, or as many as there is time for until `STOPPED`.
    `after_each` is told how many have ended."""
    answered: list[Answered] = []
    waiting = itertools.takewhile(lambda _: not STOPPED.is_set(), asks)

    async def ask_on() -> None:
        for ask in waiting:
            answered.append(await _ask(pool, ask))
            after_each(len(answered))

    await pool.while_served(ask_on() for _ in range(in_flight))
    return answered


async def fill_kv_cache(pool: Pool) -> None:
    """Use every block once, so that memory which is merely reserved counts on all sides."""
    prompt_tokens = min(_MOST_PROMPT_TOKENS, await pool.kv_cache_tokens())
    count = -(-await pool.kv_cache_tokens() // prompt_tokens) + 2
    tenant = next(iter(pool.callers))
    waiting = iter(range(count))

    async def ask_on() -> None:
        for number in waiting:
            prompt = [100 + (number * 7 + place) % 1000 for place in range(prompt_tokens)]
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
            request = _request(
                MODEL, body, api=Api.COMPLETIONS, prompt_bound=prompt_tokens, tokens=1
            )
            generation = await pool.completions.begin(pool.callers[tenant], request)
            if (end := await generation.result()).outcome is not Outcome.COMPLETED:
                raise RuntimeError(f"a request that fills the KV cache ended with {end.error}")

    await pool.while_served(ask_on() for _ in range(4))


def rightful(answered: Sequence[Answered]) -> tuple[int, int]:
    """Return how many requests found some of their prompt cached that their own tenant had asked
    of the same version, or of the base, and how many found some that nobody had."""
    asked: dict[tuple[str, str], list[float]] = {}
    for each in answered:
        asked.setdefault((each.ask.tenant, each.label), []).append(each.began)
    hits: Counter[bool] = Counter(
        sum(began < each.ended for began in asked[each.ask.tenant, each.label]) > 1
        for each in answered
        if each.cached_tokens
    )
    return hits[True], hits[False]


def _ask_of(version: Version, draw: random.Random, model: str) -> Ask:
    question = draw.randrange(questions.COUNT)
    return Ask(tenant=version.tenant, question=question, model=model, version=version)


async def _ask(pool: Pool, ask: Ask) -> Answered:
    body = questions.body(ask.question, with_logprobs=pool.has_logprobs)
    prompt_bytes = len(body["messages"][0]["content"].encode())
    request = _request(ask.model, body, prompt_bound=prompt_bytes, tokens=questions.TOKENS)
    began, label = time.monotonic(), ""
    try:
        generation = await pool.completions.begin(pool.callers[ask.tenant], request)
        label = generation.adapter or ""
        end = await generation.result()
    except InferenceError as error:
        problem = error.to_wire().code or type(error).__name__
        return Answered(ask=ask, label=label, began=began, ended=time.monotonic(), error=problem)
    answered = Answered(
        ask=ask,
        label=label,
        began=began,
        ended=time.monotonic(),
        cached_tokens=end.usage.cached_tokens,
    )
    if end.body is None:
        return replace(answered, error=(end.error and end.error.code) or end.outcome.value)
    return replace(answered, answer=Answer.of(json.loads(end.body)))


def _request(
    model: str,
    body: dict[str, Any],
    *,
    prompt_bound: int,
    tokens: int,
    api: Api = Api.CHAT_COMPLETIONS,
) -> InferenceRequest:
    is_chat = api is Api.CHAT_COMPLETIONS
    return InferenceRequest(
        api=api,
        model=model,
        stream=False,
        body=json.dumps(body).encode(),
        output_tokens=tokens,
        output_param="max_tokens",
        prompt_bytes=prompt_bound if is_chat else 0,
        prompt_token_ids=0 if is_chat else prompt_bound,
        prompt_param="messages" if is_chat else "prompt",
        prompt_bound=prompt_bound,
        logprobs_per_token=1 + body["top_logprobs"] if body.get("logprobs") else 0,
    )
