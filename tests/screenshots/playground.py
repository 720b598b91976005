"""A conversation in the playground: two models, which scripted workers of two pools answer for,
through the gateway and its websocket."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import structs
from playwright.sync_api import Page, expect

from gpu_workers.protocol.messages import Outcome, TokenUsage
from inference.models import Pool, ServedModel
from tenants.billing.models import Price
from tenants.policy.writer import rebuild_policy
from tests.support.chromium.whole_service import a_worker_in_a_thread
from tests.support.gateways.scripted_worker import Run
from tests.support.servers import servers

_QUESTION: Final = "What is a penstock, and what sets it apart from an open channel?"
_SYSTEM: Final = "You help the operators of hydropower plants. Be brief."
# Each model, which is the only one of its pool: seconds to its first token and between two, and
# what it says.
_ANSWERS: Final = {
    "llama-3.1-70b": (0.14, 0.011, """\
A **penstock** is the closed pipe that leads water from the intake to the turbine, behind a gate.

| | Penstock | Open channel |
|---|---|---|
| Pressure | rises with the head | none |
| Flow | set by gate and turbine | set by the slope |
| Losses | friction in the pipe | seepage, evaporation |

Close its gate *slowly*: water hammer can burst the pipe.
"""),
    "qwen-3-32b": (0.06, 0.006, """\
A penstock is a **pressure pipe with a gate** between intake and turbine. Of an open channel


1. the water has a free surface, so there is no pressure to use;
2. the flow follows the slope, `Q = A * v`, and no gate holds it for long;
3. some of the water is lost on the way.

> Rule of thumb: a channel carries water *along* a hill, a penstock takes it *down*.
"""),
}  # fmt: skip
# Of a million tokens, in micro-dollars: prompt and completion.
_PRICES: Final = {
    "llama-3.1-8b": (150_000, 600_000),
    "llama-3.1-70b": (590_000, 790_000),
    "qwen-3-32b": (240_000, 320_000),
}


def have_models() -> None:
    """Give each its price, and the policy to the gateways; within an operator's scope."""
    pool = Pool.objects.create(name="qwen-3-32b")
    ServedModel.objects.create(name=pool.name, pool=pool, context_tokens=131_072)
    for model, (prompt, completion) in _PRICES.items():
        Price.objects.create(
            model=model,
            prompt_micros_per_million_tokens=prompt,
            cached_micros_per_million_tokens=prompt // 2,
            completion_micros_per_million_tokens=completion,
        )
    rebuild_policy()


@contextmanager
def workers() -> Iterator[None]:
    """Answer requests of the pools until the end of the block."""
    with ExitStack() as stack:
        for number, pool in enumerate(_ANSWERS):
            url = servers().worker_redis_url(pool)
            name = f"gpu-{number + 6}#0000000{number + 6}"
            stack.enter_context(a_worker_in_a_thread(url, _answer, pool=pool, worker_id=name))
        yield


def talk(page: Page) -> None:
    """Ask both models, and wait for the end of their answers."""
    for place, model in enumerate(_ANSWERS):
        page.locator(f"[name=model_{'AB'[place]}]").select_option(model)
    page.locator("[name=system]").fill(_SYSTEM)
    page.locator("[name=temperature]").fill("0.3")
    page.locator("[name=message]").fill(_QUESTION)
    page.get_by_role("button", name="Send").click()
    for pane in page.locator("[data-pane]").all():
        expect(pane.locator("[data-figure=tokens]")).to_contain_text(" in, ")
    expect(page.locator("[aria-busy]")).to_have_count(0)


async def _answer(run: Run) -> None:
    wait, pause, text = _ANSWERS[run.envelope.model]
    await asyncio.sleep(wait)
    for word in text.split(" "):
        await run.say(f"{word} ")
        await asyncio.sleep(pause)
    said = sum(len(message["content"]) for message in json.loads(run.envelope.body)["messages"])
    usage = TokenUsage(prompt_tokens=said // 4, completion_tokens=run.tokens)
    if await run.finish():
        await run.push(structs.replace(run.terminal(Outcome.COMPLETED), usage=usage))
