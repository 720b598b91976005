"""Record what the demo model answers to the short prompts, for the replayed engine.

    .venv-engine/bin/python -m tests.benchmarks.front.record

Sampled, so that an answer of 512 tokens does not end in a loop; with a seed, so that it is the same
each time. The end of the sequence is not allowed: the benchmark's requests ignore it.
"""

import json
import os

from gpu_workers.config import DEMO_MODEL_PATH, WorkerConfig
from gpu_workers.vllm.arguments import set_environment, weights_type
from tests.benchmarks.front.recording import RECORDING
from tests.benchmarks.load.prompts import SHORT

TOKENS = 512


def main() -> None:
    config = WorkerConfig.from_environ({"PENSTOCK_DISPATCH_REDIS_URL": "redis://127.0.0.1"})
    set_environment(config, os.environ)
    from vllm import LLM, SamplingParams

    llm = LLM(model=str(DEMO_MODEL_PATH), dtype=weights_type(config), enforce_eager=True)
    sampling = SamplingParams(temperature=1.0, seed=0, min_tokens=TOKENS, max_tokens=TOKENS)
    conversations = [[{"role": "user", "content": prompt}] for prompt in SHORT]
    recordings = [
        {
            "prompt": prompt,
            "prompt_token_ids": list(answer.prompt_token_ids),
            "token_ids": list(answer.outputs[0].token_ids),
        }
        for prompt, answer in zip(SHORT, llm.chat(conversations, sampling), strict=True)
    ]
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in recordings)
    RECORDING.write_text(f'{{"recordings":[\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
