"""AsyncLLM asked in process, without any server: the most that anything in front of it can reach.

    .venv-engine/bin/python -m tests.benchmarks.serving.ceiling MAX_NUM_SEQS

Rounds come as lines on the standard input. Prompts are rendered before a round begins, and each
answer's tokens are taken as they come, detokenized. Runs in the engine's environment.
"""

import asyncio
import os
import sys
import time
from typing import IO, Any

import uvloop

from gpu_workers.config import WorkerConfig
from gpu_workers.vllm.arguments import command_line, set_environment
from tests.benchmarks.load.generator import Job, answer_rounds
from tests.benchmarks.load.rounds import Round, RoundResult, Sample, quantile


class Ceiling:
    def __init__(self, config: WorkerConfig) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(command_line(config))
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(arguments))
        self._asked = 0

    def run(self, job: Job) -> RoundResult:
        return self._loop.run_until_complete(self._run(job.round))

    def stop(self) -> None:
        self._llm.shutdown(timeout=1.0)

    async def _run(self, round_: Round) -> RoundResult:
        prompts = [self._rendered(prompt) for prompt in round_.prompts]
        waiting = list(reversed(range(round_.requests)))
        samples: list[Sample] = []
        gaps_ms: list[float] = []

        async def stream() -> None:
            while waiting:
                prompt = prompts[waiting.pop() % len(prompts)]
                samples.append(await self._ask(prompt, round_, gaps_ms))

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(round_.streams):
                group.create_task(stream())
        wall_ms = 1000 * (time.perf_counter() - began)
        gaps = (quantile(gaps_ms, 50), quantile(gaps_ms, 99))
        arrivals = len(gaps_ms) + len(samples)
        return RoundResult(samples=samples, wall_ms=wall_ms, gaps_ms=gaps, arrivals=arrivals)

    async def _ask(self, prompt: Any, round_: Round, gaps_ms: list[float]) -> Sample:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._asked += 1
        kind = RequestOutputKind.DELTA if round_.is_streaming else RequestOutputKind.FINAL_ONLY
        parameters = SamplingParams(
            temperature=0, max_tokens=round_.max_tokens, ignore_eos=True, output_kind=kind
        )
        began = now = time.perf_counter()
        first: float | None = None
        tokens = 0
        async for output in self._llm.generate(prompt, parameters, str(self._asked)):
            last, now = now, time.perf_counter()
            if first is None:
                first = now
            else:
                gaps_ms.append(1000 * (now - last))
            tokens += len(output.outputs[0].token_ids)
        return Sample(
            ttft_ms=1000 * ((first or now) - began),
            duration_ms=1000 * (now - began),
            completion_tokens=tokens,
        )

    def _rendered(self, prompt: str) -> Any:
        """Return what a serving object would give AsyncLLM for one message."""
        renderer = self._llm.renderer
        conversation = [{"role": "user", "content": prompt}]
        token_ids = renderer.get_tokenizer().apply_chat_template(
            conversation, add_generation_prompt=True, return_dict=False
        )
        return {"type": "token", "prompt_token_ids": token_ids}


def main() -> None:
    output: IO[bytes] = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # vLLM prints
    config = WorkerConfig.from_environ(
        {"PENSTOCK_DISPATCH_REDIS_URL": "redis://127.0.0.1", "PENSTOCK_MAX_NUM_SEQS": sys.argv[1]}
    )
    set_environment(config, os.environ)
    ceiling = Ceiling(config)
    try:
        answer_rounds(ceiling.run, output)
    finally:
        ceiling.stop()


if __name__ == "__main__":
    main()
