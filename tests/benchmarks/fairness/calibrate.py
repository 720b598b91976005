"""Fits the engine model to the demo model on the real vLLM, and prints how far off it is.

    .venv-engine/bin/python -m tests.benchmarks.fairness.calibrate [SETTING=VALUE ...]

Runs with the worker's own engine arguments, which settings such as PENSTOCK_DTYPE=float32 change,
in one process. A workload of random sizes is run several times; as all that happens in a step is
the same each time, a step's length is the least of the runs: whatever else the machine does only
adds to it. One workload is fitted, another one predicted.
"""

import argparse
import os
import random
import time
from dataclasses import dataclass
from typing import Any

from gpu_workers.config import WorkerConfig
from gpu_workers.vllm.arguments import command_line, set_environment

SLOTS, REQUESTS, LARGEST_PROMPT, LARGEST_OUTPUT = 64, 140, 900, 120
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step of the engine was given to do, in tokens; `kv` are those it attends to."""

    decoding: int
    prefilled: int
    kv: int

    @property
    def row(self) -> tuple[float, ...]:
        return 1.0, float(self.decoding), float(self.prefilled), float(self.kv)


class TimedEngine:
    """vLLM's engine, one step at a time."""

    def __init__(self, settings: dict[str, str]) -> None:
        config = WorkerConfig.from_environ(
            {
                "PENSTOCK_DISPATCH_REDIS_URL": "redis://not-used",
                "PENSTOCK_MAX_NUM_SEQS": str(SLOTS),
                **settings,
            }
        )
        set_environment(config, os.environ)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.llm_engine import LLMEngine

        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(command_line(config))
        self.engine = LLMEngine.from_engine_args(AsyncEngineArgs.from_cli_args(arguments))
        core: Any = self.engine.engine_core
        self.scheduler = core.engine_core.scheduler
        self.scheduled: Any = None
        schedule = self.scheduler.schedule

        def note(*arguments: Any, **options: Any) -> Any:
            self.scheduled = schedule(*arguments, **options)
            return self.scheduled

        self.scheduler.schedule = note
        self._ids = 0
        vllm_config = self.engine.vllm_config
        self.block_tokens = vllm_config.cache_config.block_size
        self.kv_tokens = (vllm_config.cache_config.num_gpu_blocks or 0) * self.block_tokens
        self.batched_tokens = vllm_config.scheduler_config.max_num_batched_tokens

    def run(self, sizes: list[tuple[int, int]], seed: int) -> list[tuple[Step, float]]:
        """Each step with its length in ms. The number of requests at a time rises and falls."""
        draw, waiting, open_requests, steps = random.Random(seed), sizes[::-1], 0, []
        while waiting or open_requests:
            phase = (len(sizes) - len(waiting)) * 2 * len(CONCURRENCIES) // len(sizes)
            at_once = CONCURRENCIES[phase % len(CONCURRENCIES)]
            while waiting and open_requests < at_once:
                self._add(*waiting.pop(), draw)
                open_requests += 1
            began = time.process_time()
            outputs = self.engine.step()
            length_ms = (time.process_time() - began) * 1000
            open_requests -= sum(output.finished for output in outputs)
            steps.append((self._last_step(), length_ms))
        return steps

    def _add(self, prompt: int, output: int, draw: random.Random) -> None:
        from vllm.sampling_params import SamplingParams

        self._ids += 1
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        # Words of its own, so that no prompt is cached.
        tokens = [draw.randrange(100, 2000) for _ in range(prompt)]
        self.engine.add_request(str(self._ids), {"prompt_token_ids": tokens}, params)

    def _last_step(self) -> Step:
        decoding = prefilled = kv = 0
        computed = {
            each.req_id: each.num_computed_tokens for each in self.scheduled.scheduled_new_reqs
        }
        cached = self.scheduled.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        outputs = dict(zip(cached.req_ids, cached.num_output_tokens, strict=True))
        for request_id, tokens in self.scheduled.num_scheduled_tokens.items():
            kv += computed[request_id]
            if outputs.get(request_id, 0):
                decoding += 1
            else:
                prefilled += tokens
        return Step(decoding=decoding, prefilled=prefilled, kv=kv)


def measured(engine: TimedEngine, seed: int, repeats: int) -> tuple[list[Step], list[float]]:
    """The steps of a workload and their lengths in ms, each the least of the repeats."""
    draw = random.Random(seed)
    sizes = [
        (draw.randint(8, LARGEST_PROMPT), draw.randint(4, LARGEST_OUTPUT)) for _ in range(REQUESTS)
    ]
    runs = [engine.run(sizes, seed * 1000 + number) for number in range(repeats)]
    steps = [step for step, _ in runs[0]]
    if any([step for step, _ in run] != steps for run in runs):
        raise RuntimeError("the runs differ in their steps; expected the same work in each")
    lengths = [[length_ms for _, length_ms in run] for run in runs]
    return steps, [min(each) for each in zip(*lengths, strict=True)]


def fitted(steps: list[Step], lengths: list[float]) -> list[float]:
    """The four constants, with the least sum of absolute relative errors (by reweighting)."""
    import torch

    rows = torch.tensor([step.row for step in steps], dtype=torch.float64)
    wanted = torch.tensor(lengths, dtype=torch.float64)
    rows, wanted = rows / wanted[:, None], torch.ones_like(wanted)
    weights, constants = torch.ones_like(wanted), torch.zeros(4)
    for _ in range(50):
        weighted = (rows * weights[:, None], (wanted * weights)[:, None])
        constants = torch.linalg.lstsq(*weighted).solution[:, 0]
        weights = (rows @ constants - wanted).abs().clamp(min=1e-3).rsqrt()
    return [float(each) for each in constants]


def errors(constants: list[float], steps: list[Step], lengths: list[float]) -> dict[str, float]:
    """Of the prediction, in parts of what was measured."""
    predicted = [sum(a * b for a, b in zip(constants, step.row, strict=True)) for step in steps]
    off = sorted(abs(a / b - 1) for a, b in zip(predicted, lengths, strict=True))
    return {
        "median": off[len(off) // 2],
        "p90": off[int(0.9 * len(off))],
        "total": sum(predicted) / sum(lengths) - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE")
    arguments = parser.parse_args()
    repeats: int = arguments.repeats
    engine = TimedEngine(dict(each.split("=", 1) for each in arguments.settings))
    measured(engine, 0, 1)  # a first run warms caches and allocators up
    steps, lengths = measured(engine, 1, repeats)
    others, other_lengths = measured(engine, 2, repeats)
    constants = fitted(steps, lengths)
    names = ("fixed_ms", "per_sequence_ms", "per_prompt_token_ms", "per_kv_token_ms")
    for name, value in zip(names, constants, strict=True):
        print(f"{name:22}{value:12.6f}")
    print(f"{'slots':22}{SLOTS:12}\n{'kv_tokens':22}{engine.kv_tokens:12}")
    print(f"{'block_tokens':22}{engine.block_tokens:12}")
    print(f"{'batched_tokens':22}{engine.batched_tokens:12}")
    for name, found in (
        (f"fitted, {len(steps)} steps", errors(constants, steps, lengths)),
        (f"predicted, {len(others)} steps", errors(constants, others, other_lengths)),
    ):
        print(
            f"{name:26} error of a step: median {found['median']:.1%}, p90 {found['p90']:.1%}; "
            f"of the whole run: {found['total']:+.1%}"
        )


if __name__ == "__main__":
    main()
