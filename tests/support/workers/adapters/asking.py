"""Asking an engine by an adapter, and by none. As plain as `workers.asking`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu_workers.engine import Engine, EngineDescription, LoadableAdapter
from gpu_workers.protocol.adapters import AdapterBase
from gpu_workers.protocol.messages import Envelope
from tests.support.workers.adapters.lora_files import write_adapter
from tests.support.workers.asking import ENDLESS, ask
from tests.support.workers.envelopes import make_envelope

TOKENS = 24


def base_of(description: EngineDescription) -> AdapterBase:
    assert description.adapter_base is not None, "the contract's engines have adapters"
    return description.adapter_base


@asynccontextmanager
async def loaded(
    engine: Engine, description: EngineDescription, count: int
) -> AsyncIterator[list[LoadableAdapter]]:
    """So many adapters, loaded; none is afterwards."""
    base = base_of(description)
    with TemporaryDirectory() as folder:
        adapters = [write_adapter(Path(folder), base, seed) for seed in range(count)]
        try:
            for adapter in adapters:
                await engine.load_adapter(adapter)
            yield adapters
        finally:
            for adapter in adapters:
                await engine.unload_adapter(adapter.name)


def question(adapter: LoadableAdapter | None = None, **options: Any) -> Envelope:
    name = adapter.name if adapter else ""
    asked: dict[str, Any] = {"max_output_tokens": TOKENS, "adapter": name}
    return make_envelope(ENDLESS, **asked | options)


async def texts_of(engine: Engine, adapters: Sequence[LoadableAdapter | None]) -> list[str]:
    """What each answers while nobody else asks."""
    return [(await ask(engine, question(each))).text() for each in adapters]


async def texts_at_once(engine: Engine, adapters: Sequence[LoadableAdapter | None]) -> list[str]:
    answers = await asyncio.gather(*(ask(engine, question(each)) for each in adapters))
    return [answer.text() for answer in answers]
