"""Probes whether this vLLM keeps LoRA adapters apart: with all slots filled, who asks the base
beside them is answered as without them. vLLM for the CPU was shipped with a kernel that does not
(see `cpu_slots`), and nothing else would tell."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import msgspec
import numpy
import structlog
from safetensors.numpy import save_file

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.engine import AdapterRefused, LoadableAdapter
from gpu_workers.protocol.adapters import AdapterBase
from gpu_workers.vllm.adapters.loaded import LoadedAdapters
from gpu_workers.vllm.endpoints.registry import ENDPOINTS, PLAINEST
from gpu_workers.vllm.probe_requests import Answer, Serving, answer_to, probe_request

PROBE_SECONDS: Final = 300.0
TOKENS: Final = 16
# As many layers as it takes to make another text; a file of a large model stays small.
MODULES: Final = 16
STRENGTH: Final = 4.0  # times what a module makes of its input
# Where two tokens tie, an answer may differ once beside others; a wrong adapter always differs.
PROMPTS: Final = ("What is water?", "The river", "1, 2, 3")
_NAME: Final = "penstock-probe"

_log = structlog.get_logger("gpu_workers.vllm.adapters")


class ProbedAdapters(Serving, Protocol):
    """The serving under probe."""

    model: str


async def keeps_apart(serving: ProbedAdapters, adapters: LoadedAdapters) -> bool:
    """Fill the slots and ask the base alone and beside them; leave nothing loaded. Raises
    `EngineDied`."""
    with TemporaryDirectory(prefix=f"{_NAME}-") as folder:
        await asyncio.to_thread(_write, Path(folder), adapters.base)
        async with AsyncExitStack() as loaded:
            names = []
            try:
                for number in range(min(adapters.slots, adapters.in_memory - adapters.count)):
                    name = f"{_NAME}-{number}"
                    await adapters.load(LoadableAdapter(name=name, folder=Path(folder)))
                    loaded.push_async_callback(adapters.unload, name)
                    names.append(name)
            except AdapterRefused:
                _log.exception("adapter_probe_not_loaded")
                return False
            return await _answers_hold(serving, names)


async def _answers_hold(serving: ProbedAdapters, names: list[str]) -> bool:
    """Return whether the base's answers stay and the adapters' are others, for most prompts."""
    held = 0
    for prompt in PROMPTS:
        alone = await _ask(serving, prompt, "")
        beside, *of_adapters = await asyncio.gather(
            *(_ask(serving, prompt, name) for name in ("", *names))
        )
        is_base_same = alone.is_completed and beside.token_ids == alone.token_ids
        are_others = all(
            each.is_completed and each.token_ids != alone.token_ids for each in of_adapters
        )
        held += is_base_same and are_others
    return 2 * held > len(PROMPTS)


async def _ask(serving: ProbedAdapters, prompt: str, adapter: str) -> Answer:
    body: dict[str, Any] = ENDPOINTS[PLAINEST].question | {"prompt": prompt, "ignore_eos": True}
    envelope = probe_request(PLAINEST, body, model=serving.model, tokens=TOKENS)
    envelope = msgspec.structs.replace(envelope, adapter=adapter)
    return await answer_to(serving, envelope, seconds=PROBE_SECONDS)


def _write(folder: Path, base: AdapterBase) -> None:
    """Write an adapter of rank 1, as strong as the base itself, of the first modules."""
    random = numpy.random.default_rng(0)
    tensors = {}
    for module in base.modules[:MODULES]:
        down = random.standard_normal((1, module.in_features)) / module.in_features**0.5
        up = random.standard_normal((module.out_features, 1)) * STRENGTH
        name = f"base_model.model.{module.name}.lora"
        tensors[f"{name}_A.weight"] = down.astype(numpy.float32)
        tensors[f"{name}_B.weight"] = up.astype(numpy.float32)
    save_file(tensors, folder / WEIGHTS_FILE)
    targets = sorted({module.name.rpartition(".")[2] for module in base.modules})
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": targets}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
