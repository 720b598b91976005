"""What every engine owes whoever has a LoRA adapter, and whoever has none. Run against the
simulated engine and against vLLM, both with fewer slots than adapters in memory.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from gpu_workers.engine import Engine, EngineDescription, LoadableAdapter
from gpu_workers.protocol.messages import Api, Envelope, Outcome
from tests.support.workers.adapters.asking import (
    TOKENS,
    base_of,
    loaded,
    question,
    texts_at_once,
    texts_of,
)
from tests.support.workers.adapters.lora_files import write_adapter
from tests.support.workers.asking import ENDLESS, QUESTION, Clause, ask
from tests.support.workers.envelopes import make_envelope

LONG_TOKENS = 120
# The Frobenius norm of the demo model's last down_proj, by its file.
DOWN_NORM = 25.9
CHURN = 12


async def it_tells_what_its_adapters_are_made_for(
    engine: Engine, description: EngineDescription
) -> None:
    base = base_of(description)
    assert 1 < description.adapter_slots < description.adapters_in_memory
    assert base.model == "sim"
    assert len(base.digest) == 64
    assert base.max_rank == 8
    names = [module.name for module in base.modules]
    assert names == sorted(set(names))
    assert "model.layers.0.self_attn.q_proj" in names
    assert not any("lm_head" in name or "embed" in name for name in names)
    down = next(each for each in base.modules if each.name == "model.layers.3.mlp.down_proj")
    assert (down.in_features, down.out_features) == (704, 256)
    assert down.norm is not None
    assert abs(down.norm / DOWN_NORM - 1) < 0.15


async def an_adapter_changes_the_answer_and_leaves_the_bases(
    engine: Engine, description: EngineDescription
) -> None:
    (before,) = await texts_of(engine, [None])
    async with loaded(engine, description, 2) as adapters:
        first = await texts_of(engine, [None, *adapters])
        assert first[0] == before
        assert len(set(first)) == 3
        assert await texts_of(engine, [*adapters, None]) == [*first[1:], before]
        whole = await ask(engine, question(adapters[0], stream=False))
        assert whole.body["choices"][0]["message"]["content"] == first[1]
        assert whole.result.usage.completion_tokens == TOKENS
    assert await texts_of(engine, [None]) == [before]


async def an_answer_bears_the_name_that_was_asked_for(
    engine: Engine, description: EngineDescription
) -> None:
    async with loaded(engine, description, 1) as (adapter,):
        for api, body in (
            (Api.CHAT_COMPLETIONS, ENDLESS),
            (Api.COMPLETIONS, {"prompt": "Water", "ignore_eos": True, "max_tokens": 4}),
        ):
            if description.engine != "sim":  # which has none
                body = body | {"logprobs": 1 if api is Api.COMPLETIONS else True}
            for asked in ("acme/support", "acme/support@3"):
                for stream in (True, False):
                    envelope = make_envelope(
                        body | {"model": asked},
                        api=api,
                        stream=stream,
                        max_output_tokens=4,
                        adapter=adapter.name,
                        adapter_name="acme/support",
                        adapter_version=3,
                    )
                    answer = await ask(engine, envelope)
                    said = answer.events if stream else [answer.body]
                    assert {each["model"] for each in said} == {asked}
                    assert adapter.name not in str(said)
        base = await ask(engine, make_envelope(QUESTION | {"model": "acme/support"}))
        assert {event["model"] for event in base.events} == {"sim"}


async def whoever_asks_the_base_beside_full_slots_gets_the_base(
    engine: Engine, description: EngineDescription
) -> None:
    async with loaded(engine, description, description.adapter_slots) as adapters:
        asked = [None, *adapters, None, None]
        alone = await texts_of(engine, asked)
        for _ in range(3):
            assert await texts_at_once(engine, asked) == alone


async def more_adapters_than_slots_are_all_answered_each_by_its_own(
    engine: Engine, description: EngineDescription
) -> None:
    async with loaded(engine, description, description.adapters_in_memory) as adapters:
        asked = [*adapters, None]
        alone = await texts_of(engine, asked)
        assert len(set(alone)) == len(asked)
        for _ in range(2):
            assert await texts_at_once(engine, asked) == alone


async def loading_and_unloading_beside_them_changes_no_stream(
    engine: Engine, description: EngineDescription
) -> None:
    async with loaded(engine, description, 2) as adapters:
        asked = [None, *adapters]

        def long(adapter: LoadableAdapter | None) -> Envelope:
            return question(adapter, max_output_tokens=LONG_TOKENS)

        alone = [(await ask(engine, long(each))).text() for each in asked]
        streams = [asyncio.create_task(ask(engine, long(each))) for each in asked for _ in range(2)]
        with TemporaryDirectory() as folder:
            for seed in range(100, 100 + CHURN):
                other = write_adapter(Path(folder), base_of(description), seed)
                await engine.load_adapter(other)
                assert (await ask(engine, question(other, max_output_tokens=2))).text()
                await engine.unload_adapter(other.name)
        answers = await asyncio.gather(*streams)
        assert [answer.text() for answer in answers] == [each for each in alone for _ in range(2)]
        assert {answer.result.usage.completion_tokens for answer in answers} == {LONG_TOKENS}


async def a_request_resumes_under_its_adapter(
    engine: Engine, description: EngineDescription
) -> None:
    if not description.can_resume:
        return
    async with loaded(engine, description, 1) as (adapter,):
        whole = await ask(engine, question(adapter))
        ids = [token_id for output in whole.outputs for token_id in output.token_ids]
        resumed = await ask(engine, question(adapter, resumed_token_ids=ids[: TOKENS // 2]))
        assert resumed.result.outcome is Outcome.COMPLETED, resumed.result
        assert resumed.text() == whole.text()
        usage = msgspec.structs.replace(resumed.result.usage, cached_tokens=0)  # as whole left it
        assert usage == msgspec.structs.replace(whole.result.usage, cached_tokens=0)


async def weights_that_overflow_harm_nobody_else(
    engine: Engine, description: EngineDescription
) -> None:
    """Those that are no numbers are refused when they are uploaded, huge ones are numbers: neither
    changes what others are answered, nor what is left in memory that others get."""
    async with loaded(engine, description, description.adapter_slots - 1) as adapters:
        alone = await texts_of(engine, [None, *adapters])
        with TemporaryDirectory() as folder:
            for weight in (float("nan"), 3e38, 1e12):
                broken = write_adapter(Path(folder), base_of(description), 9, weight=weight)
                await engine.load_adapter(broken)
                *others, _ = await texts_at_once(engine, [None, *adapters, broken])
                assert others == alone, weight
                await engine.unload_adapter(broken.name)
                for _ in range(3):
                    assert await texts_at_once(engine, [None, *adapters]) == alone, weight


async def a_prefix_is_cached_for_one_adapter_only(
    engine: Engine, description: EngineDescription
) -> None:
    """Of one tenant too, whose salt they share; not everywhere is a prefix cached at all."""
    long = {"messages": [{"role": "user", "content": "What is a penstock? " * 40}]}
    async with loaded(engine, description, 2) as (one, other):

        async def cached(adapter: LoadableAdapter | None, salt: str = "c2FsdC1vZi1hY21l") -> int:
            name = adapter.name if adapter else ""
            envelope = make_envelope(long, adapter=name, cache_salt=salt, max_output_tokens=2)
            return (await ask(engine, envelope)).result.usage.cached_tokens

        await cached(None)
        again = await cached(None)
        assert await cached(one) == 0
        assert await cached(one) == again
        assert await cached(other) == 0
        assert await cached(one, "c2FsdC1vZi1nbG9iZXg") == 0
        assert await cached(None) == again


ADAPTER_CLAUSES: list[Clause] = [
    it_tells_what_its_adapters_are_made_for,
    an_adapter_changes_the_answer_and_leaves_the_bases,
    an_answer_bears_the_name_that_was_asked_for,
    whoever_asks_the_base_beside_full_slots_gets_the_base,
    more_adapters_than_slots_are_all_answered_each_by_its_own,
    loading_and_unloading_beside_them_changes_no_stream,
    a_request_resumes_under_its_adapter,
    weights_that_overflow_harm_nobody_else,
    a_prefix_is_cached_for_one_adapter_only,
]
