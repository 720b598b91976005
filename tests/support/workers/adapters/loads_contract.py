"""What every engine keeps of its promises to load and unload: nobody who asks meanwhile is harmed.

Plain functions and asserts, as in `contract`.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.engine import (
    AdapterRefused,
    Engine,
    EngineDescription,
    LoadableAdapter,
    Output,
    Result,
)
from gpu_workers.protocol.adapters import AdapterBase
from gpu_workers.protocol.messages import Outcome
from tests.support.workers.adapters.asking import (
    base_of,
    loaded,
    question,
    texts_at_once,
    texts_of,
)
from tests.support.workers.adapters.lora_files import write_adapter
from tests.support.workers.asking import QUESTION, Answer, Clause, ask
from tests.support.workers.envelopes import make_envelope


async def an_adapter_that_is_not_loaded_is_a_typed_error(
    engine: Engine, description: EngineDescription
) -> None:
    async with loaded(engine, description, 1) as (adapter,):
        pass
    for name in ("0" * 64, adapter.name):
        for stream in (True, False):
            answer = await ask(engine, make_envelope(QUESTION, adapter=name, stream=stream))
            assert answer.result.outcome is Outcome.FAILED
            error = answer.result.error
            assert error is not None
            assert (error.code, error.status, error.should_retry) == (
                "adapter_not_loaded",
                503,
                True,
            )
            assert answer.outputs == []
            assert answer.result.usage.completion_tokens == 0


def damaged(folder: Path, base: AdapterBase) -> dict[str, LoadableAdapter]:
    """Adapters that no engine can load, by what is wrong with them."""
    module = base.modules[0]

    def write(seed: int, **options: Any) -> LoadableAdapter:
        return write_adapter(folder, base, seed, **options)

    adapters = {
        "no folder": LoadableAdapter(name="1" * 64, folder=folder / "nowhere"),
        "rank above the largest": write(1, rank=2 * base.max_rank),
        "a module that the base has not": write(
            2, modules=[msgspec.structs.replace(module, name="lm_head")]
        ),
        "another base's shapes": write(
            3, modules=[msgspec.structs.replace(module, in_features=module.in_features // 2)]
        ),
        "no tensors": write(4, modules=[]),
        "another method": write(5, peft_type="LOHA"),
    }
    for number, (reason, name, content) in enumerate(
        (
            ("no weights", WEIGHTS_FILE, None),
            ("empty weights", WEIGHTS_FILE, b""),
            ("cut weights", WEIGHTS_FILE, slice(None, -1)),
            ("a header alone", WEIGHTS_FILE, slice(None, 64)),
            ("a pickle", WEIGHTS_FILE, b"\x80\x04K\x01."),
            ("no configuration", CONFIG_FILE, None),
            ("no JSON", CONFIG_FILE, b"{"),
            ("no object", CONFIG_FILE, b"[]"),
        )
    ):
        adapters[reason] = adapter = write(10 + number)
        file = adapter.folder / name
        if content is None:
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[content] if isinstance(content, slice) else content)
    return adapters


async def refusal_of(engine: Engine, adapter: LoadableAdapter) -> str:
    try:
        await engine.load_adapter(adapter)
    except AdapterRefused as refusal:
        return str(refusal)
    return ""


async def a_refused_load_leaves_the_engine_serving(
    engine: Engine, description: EngineDescription
) -> None:
    """Beside open streams, which it changes nothing of."""
    async with loaded(engine, description, 1) as (good,):
        alone = await texts_of(engine, [None, good])
        streams = asyncio.create_task(texts_at_once(engine, [None, good]))
        with TemporaryDirectory() as folder:
            for reason, adapter in damaged(Path(folder), base_of(description)).items():
                assert await refusal_of(engine, adapter), reason
                answer = await ask(engine, question(adapter))
                assert answer.result.error is not None, reason
                assert answer.result.error.code == "adapter_not_loaded", reason
                await engine.check_health()
        assert await streams == alone
        assert await texts_of(engine, [None, good]) == alone


async def a_name_that_was_refused_can_be_loaded_once_its_files_are_whole(
    engine: Engine, description: EngineDescription
) -> None:
    with TemporaryDirectory() as folder:
        whole = write_adapter(Path(folder), base_of(description), 7)
        cut = replace(whole, folder=Path(folder) / "cut")
        assert await refusal_of(engine, cut)
        await engine.load_adapter(whole)
        try:
            base, own = await texts_of(engine, [None, whole])
            assert base != own
        finally:
            await engine.unload_adapter(whole.name)


async def no_more_are_loaded_than_memory_is_for(
    engine: Engine, description: EngineDescription
) -> None:
    """None makes room for another by itself: it may be in use, or pinned."""
    async with loaded(engine, description, description.adapters_in_memory) as adapters:
        alone = await texts_of(engine, adapters)
        with TemporaryDirectory() as folder:
            one_more = write_adapter(Path(folder), base_of(description), 50)
            assert await refusal_of(engine, one_more)
            assert await texts_of(engine, adapters) == alone
            await engine.unload_adapter(adapters[0].name)
            await engine.load_adapter(one_more)
            assert await texts_of(engine, adapters[1:]) == alone[1:]
            await engine.unload_adapter(one_more.name)


async def loading_twice_is_loading_once_and_unloading_the_unknown_is_nothing(
    engine: Engine, description: EngineDescription
) -> None:
    await engine.unload_adapter("f" * 64)
    async with loaded(engine, description, 1) as (adapter,):
        (alone,) = await texts_of(engine, [adapter])
        await asyncio.gather(*(engine.load_adapter(adapter) for _ in range(4)))
        assert await texts_of(engine, [adapter]) == [alone]
        await engine.unload_adapter(adapter.name)
        await asyncio.gather(*(engine.load_adapter(adapter) for _ in range(4)))
        assert await texts_of(engine, [adapter]) == [alone]


async def a_load_that_nobody_waits_for_leaves_what_it_says(
    engine: Engine, description: EngineDescription
) -> None:
    with TemporaryDirectory() as folder:
        adapter = write_adapter(Path(folder), base_of(description), 8)
        loading = asyncio.create_task(engine.load_adapter(adapter))
        await asyncio.sleep(0)
        loading.cancel()
        await asyncio.wait([loading])
        await engine.load_adapter(adapter)
        base, own = await texts_of(engine, [None, adapter])
        assert base != own
        await engine.unload_adapter(adapter.name)
        answer = await ask(engine, question(adapter))
        assert answer.result.outcome is Outcome.FAILED


async def an_adapter_may_go_as_soon_as_its_last_request_was_aborted(
    engine: Engine, description: EngineDescription
) -> None:
    async with loaded(engine, description, 1) as (adapter,):
        alone = await texts_of(engine, [None, adapter])
        for _ in range(4):
            base = asyncio.create_task(texts_of(engine, [None]))
            envelope = question(adapter, max_output_tokens=1000)
            answer = Answer()
            async with asyncio.timeout(60):
                async for item in engine.generate(envelope):
                    if isinstance(item, Result):
                        answer.results.append(item)
                    elif isinstance(item, Output):
                        await engine.abort(envelope.request_id)
            assert answer.result.outcome is Outcome.CANCELLED
            await engine.unload_adapter(adapter.name)
            assert await base == alone[:1]
            await engine.load_adapter(adapter)
        assert await texts_of(engine, [None, adapter]) == alone


ADAPTER_LOAD_CLAUSES: list[Clause] = [
    an_adapter_that_is_not_loaded_is_a_typed_error,
    a_refused_load_leaves_the_engine_serving,
    a_name_that_was_refused_can_be_loaded_once_its_files_are_whole,
    no_more_are_loaded_than_memory_is_for,
    loading_twice_is_loading_once_and_unloading_the_unknown_is_nothing,
    a_load_that_nobody_waits_for_leaves_what_it_says,
    an_adapter_may_go_as_soon_as_its_last_request_was_aborted,
]
