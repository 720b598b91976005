"""`make prove-gpu`: the engine's contract on a GPU, then our engine beside AsyncLLM alone.

Runs in the engine's environment and needs neither PostgreSQL nor Redis. Both sides have the same
model, the same arguments and the same prompts, one after the other in one process; ours gives
texts as it gives them to a worker, rendered for clients, AsyncLLM its own outputs. `--layers` and
`--hidden` make a model of random weights of that size, for a GPU that the demo model does not keep
busy.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from gpu_workers.config import DEMO_MODEL_PATH, WorkerConfig
from gpu_workers.engine import EmitText, Output
from gpu_workers.process_tree import adopt_children
from gpu_workers.protocol.text_event import text_event
from gpu_workers.vllm.arguments import command_line, set_environment
from gpu_workers.vllm.engine import VllmEngine
from tests.support.workers import run_engine_contract
from tests.support.workers.adapters.lora_files import write_adapter
from tests.support.workers.envelopes import make_envelope

STREAMS, TOKENS, ROUNDS, ADAPTERS = (1, 32, 256), 256, 3, 8
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What does a penstock carry to the turbine?"}],
    "ignore_eos": True,
    "temperature": 0,
}
# Notes how many tokens a stream has in all, at the time at which it has them.
Note = Callable[[int], None]
Stream = Callable[[Note], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of all rounds of one side: medians, but for the rate, which is of the median round.
    `start_seconds` of the side that starts second are shorter: what the first has compiled lies in
    the cache. Ours hold the warm-up, which AsyncLLM alone has none of."""

    side: str
    start_seconds: float
    gpu_memory: str
    streams: int
    tokens_per_second: float
    first_token_ms: float
    between_tokens_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=list(STREAMS))
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each answer")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--layers", type=int, default=0, help="0: the demo model as it is")
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("var/benchmarks/gpu.json"))
    asked = parser.parse_args()
    adopt_children()
    found: dict[str, Any] = {"machine": _machine(), "arguments": _arguments(asked)}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    # One folder for all parts: vLLM finds what it compiled for a model by the model's path too.
    with tempfile.TemporaryDirectory(prefix="penstock-gpu-") as folder:
        for part in asked.part:
            began = time.monotonic()
            found[part] = PARTS[part](asked, Path(folder))
            print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
            asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(
        json.dumps({name: value for name, value in found.items() if name != "contract"}, indent=1)
    )


def prove_contract(_: argparse.Namespace, __: Path) -> dict[str, str | None]:
    """Ask every clause of the engine's contract; null is a clause that is kept."""
    import torch

    # On a GPU vLLM's kernels for adapters take halves only, and stop at the contract's float32.
    settings = ["PENSTOCK_DTYPE=bfloat16"] if torch.cuda.is_available() else []
    outcomes = uvloop.run(run_engine_contract.run(str(DEMO_MODEL_PATH), settings))
    failed = [name for name, failure in outcomes.items() if failure]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} clauses are kept", flush=True)
    return outcomes


def measure_figures(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    config = _config(asked, folder)
    found = [uvloop.run(_ours(asked, config)), uvloop.run(_alone(asked, config))]
    return [asdict(each) for side in found for each in side]


def measure_adapters(asked: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Load adapters while 16 streams run, in milliseconds, and read what the streams notice."""
    return uvloop.run(_adapters(asked, _config(asked, folder), folder))


PARTS: dict[str, Callable[[argparse.Namespace, Path], Any]] = {
    "contract": prove_contract,
    "figures": measure_figures,
    "adapters": measure_adapters,
}


async def _ours(asked: argparse.Namespace, config: WorkerConfig) -> list[Figures]:
    engine = VllmEngine(config)
    began = time.monotonic()
    await engine.start()
    await engine.warm_up()
    start = _Start(side="ours", seconds=time.monotonic() - began)

    async def stream(note: Note) -> None:
        await _generate(engine, asked.tokens, note)

    try:
        return [await _measure(start, stream, asked, streams) for streams in asked.streams]
    finally:
        await engine.stop()


async def _alone(asked: argparse.Namespace, config: WorkerConfig) -> list[Figures]:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(command_line(config))
    began = time.monotonic()
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(arguments))
    start = _Start(side="AsyncLLM", seconds=time.monotonic() - began)
    tokenizer = llm.get_tokenizer()
    prompt = tokenizer.apply_chat_template(
        BODY["messages"], add_generation_prompt=True, tokenize=False
    )
    sampling = SamplingParams(temperature=0, max_tokens=asked.tokens, ignore_eos=True)
    number = 0

    async def stream(note: Note) -> None:
        nonlocal number
        number += 1
        async for output in llm.generate(prompt, sampling, f"alone-{number}"):
            note(len(output.outputs[0].token_ids))

    try:
        return [await _measure(start, stream, asked, streams) for streams in asked.streams]
    finally:
        llm.shutdown()


async def _generate(engine: VllmEngine, tokens: int, note: Note) -> None:
    """Ask as a worker asks: most texts come past the generator."""

    def begin_texts(form: tuple[bytes, bytes]) -> EmitText:
        def emit(text: str, completion_tokens: int, token_ids: list[int]) -> None:
            text_event(form, text)
            note(completion_tokens)

        return emit

    async for item in engine.generate(make_envelope(BODY, max_output_tokens=tokens), begin_texts):
        if isinstance(item, Output):
            note(item.completion_tokens)


@dataclass(frozen=True, kw_only=True)
class _Start:
    side: str
    seconds: float


async def _measure(
    start: _Start, stream: Stream, asked: argparse.Namespace, streams: int
) -> Figures:
    await asyncio.gather(*(_read(stream) for _ in range(streams)))  # compiles what it needs
    rates, firsts, between = [], [], []
    for _ in range(asked.rounds):
        began = time.monotonic()
        reads = await asyncio.gather(*(_read(stream) for _ in range(streams)))
        rates.append(sum(read.tokens for read in reads) / (time.monotonic() - began))
        firsts += [1_000 * read.first_seconds for read in reads]
        between += [1_000 * read.between_seconds for read in reads]
    figures = Figures(
        side=start.side,
        start_seconds=round(start.seconds, 1),
        gpu_memory=_of_gpu("memory.used"),
        streams=streams,
        tokens_per_second=round(statistics.median(rates)),
        first_token_ms=round(statistics.median(firsts), 2),
        between_tokens_ms=round(statistics.median(between), 3),
    )
    print(figures, flush=True)
    return figures


@dataclass(frozen=True, kw_only=True)
class _Read:
    tokens: int
    first_seconds: float
    between_seconds: float
    longest_seconds: float


async def _read(stream: Stream) -> _Read:
    began = last = time.monotonic()
    first, tokens, longest = 0.0, 0, 0.0

    def note(count: int) -> None:
        nonlocal first, tokens, longest, last
        now = time.monotonic()
        if count and not tokens:
            first = now - began
        elif tokens:
            longest = max(longest, now - last)
        tokens, last = count, now

    await stream(note)
    between = (last - began - first) / max(1, tokens - 1)
    return _Read(
        tokens=tokens, first_seconds=first, between_seconds=between, longest_seconds=longest
    )


async def _adapters(
    asked: argparse.Namespace, config: WorkerConfig, folder: Path
) -> dict[str, float]:
    engine = VllmEngine(config)
    description = await engine.start()
    await engine.warm_up()
    assert description.adapter_base is not None
    adapters = [
        await asyncio.to_thread(write_adapter, folder, description.adapter_base, seed, rank=8)
        for seed in range(ADAPTERS)
    ]

    async def stream(note: Note) -> None:
        await _generate(engine, 4 * asked.tokens, note)

    try:
        running = [asyncio.create_task(_read(stream)) for _ in range(16)]
        loads, answers = [], []
        for adapter in adapters:
            loads.append(await _timed(engine.load_adapter(adapter)))
            answers.append(await _timed(_first_answer(engine, adapter.name)))
        reads = await asyncio.gather(*running)
    finally:
        await engine.stop()
    return {
        "load_ms": round(1_000 * statistics.median(loads), 1),
        "answer_of_8_tokens_ms": round(1_000 * statistics.median(answers), 1),
        "longest_gap_of_a_stream_ms": round(1_000 * max(r.longest_seconds for r in reads), 1),
        "between_tokens_ms": round(1_000 * statistics.median(r.between_seconds for r in reads), 3),
    }


async def _first_answer(engine: VllmEngine, name: str) -> None:
    envelope = make_envelope(BODY, max_output_tokens=8, adapter=name, adapter_name="ours")
    async for _ in engine.generate(envelope):
        pass


async def _timed(work: Awaitable[None]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


def _config(asked: argparse.Namespace, folder: Path) -> WorkerConfig:
    model = _random_model(asked, folder / "model") if asked.layers else DEMO_MODEL_PATH
    config = WorkerConfig.from_environ(
        {
            "PENSTOCK_DISPATCH_REDIS_URL": "redis://not-used",
            "PENSTOCK_MODEL_PATH": str(model),
            "PENSTOCK_WORKER_MODEL": "sim",  # the name that the envelopes carry
            "PENSTOCK_MAX_NUM_SEQS": str(max(asked.streams)),
            "PENSTOCK_ADAPTER_SLOTS": "4",
            "PENSTOCK_ADAPTERS_IN_MEMORY": "8",
            "PENSTOCK_ADAPTER_MAX_RANK": "8",
        }
    )
    set_environment(config, os.environ)
    return config


def _random_model(asked: argparse.Namespace, folder: Path) -> Path:
    """Write, once, a model of the demo model's kind and tokenizer, larger, of random weights."""
    if folder.exists():
        return folder
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(DEMO_MODEL_PATH, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = AutoConfig.from_pretrained(DEMO_MODEL_PATH)
    config.hidden_size = asked.hidden
    config.intermediate_size = 4 * asked.hidden
    config.num_hidden_layers = asked.layers
    config.num_attention_heads = asked.hidden // config.head_dim
    config.num_key_value_heads = max(1, config.num_attention_heads // 4)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    print(f"{model.num_parameters() / 1e6:.0f} million parameters of random weights", flush=True)
    del model
    if device == "cuda":
        torch.cuda.empty_cache()
    return folder


def _arguments(asked: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(asked).items() if name != "out"}


def _machine() -> dict[str, str]:
    import torch
    import vllm

    return {
        "GPU": _of_gpu("name,driver_version,memory.total"),
        "torch": torch.__version__,
        "vllm": vllm.__version__,
        "Python": sys.version.split()[0],
        "cores": str(len(os.sched_getaffinity(0))),
    }


def _of_gpu(names: str) -> str:
    """Return what the driver says of the GPUs, a line each; "none" without a driver."""
    query = ["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"]
    if shutil.which(query[0]) is None:
        return "none"
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
