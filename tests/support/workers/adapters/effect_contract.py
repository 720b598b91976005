"""What every engine says of an adapter that it has loaded: whether that does anything at all.

Plain functions and asserts, as in `contract`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu_workers.engine import Engine, EngineDescription, LoadableAdapter, ProbeFailed
from gpu_workers.protocol.adapters import AdapterEffect
from tests.support.workers.adapters.asking import base_of, question, texts_of
from tests.support.workers.adapters.lora_files import write_adapter
from tests.support.workers.asking import Clause, ask

SEED = 200


@asynccontextmanager
async def one(
    engine: Engine, description: EngineDescription, **options: Any
) -> AsyncIterator[LoadableAdapter]:
    with TemporaryDirectory() as folder:
        adapter = write_adapter(Path(folder), base_of(description), SEED, **options)
        await engine.load_adapter(adapter)
        try:
            yield adapter
        finally:
            await engine.unload_adapter(adapter.name)


async def an_adapter_that_changes_answers_is_told_from_one_that_changes_none(
    engine: Engine, description: EngineDescription
) -> None:
    for strength, effect in (
        (1.0, AdapterEffect.CHANGES),
        (0.05, AdapterEffect.CHANGES),
        (0.0, AdapterEffect.NONE),
        (1e-5, AdapterEffect.NONE),
    ):
        async with one(engine, description, strength=strength) as adapter:
            for _ in range(2):
                assert await engine.probe_adapter(adapter.name) is effect, strength


async def an_adapter_in_one_module_alone_is_told_too(
    engine: Engine, description: EngineDescription
) -> None:
    last = [each for each in base_of(description).modules if each.name.endswith("down_proj")][-1:]
    async with one(engine, description, modules=last) as adapter:
        assert await engine.probe_adapter(adapter.name) is AdapterEffect.CHANGES


async def weights_that_are_no_numbers_are_never_taken_for_an_adapter(
    engine: Engine, description: EngineDescription
) -> None:
    """On vLLM's CPUs they change nothing, since what an adapter adds is kept finite there."""
    async with one(engine, description, weight=float("nan")) as adapter:
        assert await engine.probe_adapter(adapter.name) is not AdapterEffect.CHANGES
        await engine.check_health()


async def a_probe_beside_streams_changes_none_of_them_and_sees_what_it_does_alone(
    engine: Engine, description: EngineDescription
) -> None:
    async with one(engine, description) as adapter, one(engine, description, strength=0.0) as none:
        asked = [None, adapter, None, adapter]
        alone = await texts_of(engine, asked)
        streams = [asyncio.create_task(ask(engine, question(each))) for each in asked]
        for _ in range(3):
            effects = [await engine.probe_adapter(each.name) for each in (adapter, none)]
            assert effects == [AdapterEffect.CHANGES, AdapterEffect.NONE]
        assert [(await stream).text() for stream in streams] == alone


async def an_adapter_that_is_not_loaded_is_not_probed(
    engine: Engine, description: EngineDescription
) -> None:
    try:
        await engine.probe_adapter("0" * 64)
    except ProbeFailed:
        return
    raise AssertionError("nothing can be told of what is not there")


ADAPTER_EFFECT_CLAUSES: list[Clause] = [
    an_adapter_that_changes_answers_is_told_from_one_that_changes_none,
    an_adapter_in_one_module_alone_is_told_too,
    weights_that_are_no_numbers_are_never_taken_for_an_adapter,
    a_probe_beside_streams_changes_none_of_them_and_sees_what_it_does_alone,
    an_adapter_that_is_not_loaded_is_not_probed,
]
