"""Answers come whole from a process that runs rounds, however long they are."""

import os
import sys

from tests.benchmarks.load.generator import round_runner
from tests.benchmarks.load.rounds import Round

SAMPLES = 20_000
_PROGRAM = f"""
import sys
from tests.benchmarks.load.generator import answer_rounds
from tests.benchmarks.load.rounds import RoundResult, Sample

sample = Sample(ttft_ms=1 / 3, duration_ms=2 / 3, completion_tokens=1)
result = RoundResult(samples=[sample] * {SAMPLES}, wall_ms=1.0, gaps_ms=(0.0, 0.0), arrivals=1)
answer_rounds(lambda job: result, sys.stdout.buffer)
"""


def test_an_answer_longer_than_a_pipe_holds_comes_whole_from_an_unbuffered_process() -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with round_runner([sys.executable, "-c", _PROGRAM], environ=environ) as runner:
        result = runner.run(Round(streams=1, requests=1, max_tokens=1, prompts=["a"]))
    assert len(result.samples) == SAMPLES
