"""The load generator's process; `generator` starts it."""

import sys

import uvloop

from tests.benchmarks.load.client import run_round
from tests.benchmarks.load.generator import Job, answer_rounds
from tests.benchmarks.load.rounds import RoundResult


def run(job: Job) -> RoundResult:
    assert job.target is not None
    return uvloop.run(run_round(job.target, job.round))


if __name__ == "__main__":
    answer_rounds(run, sys.stdout.buffer)
