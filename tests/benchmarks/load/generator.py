"""A process that runs rounds: it reads one as a line of JSON and answers what came of it.

The load generator is one, and so is whatever generates without a server. Each ends with its
standard input, so also when the benchmark is killed.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from tests.benchmarks.load.rounds import LoadError, Round, RoundResult, Target
from tests.support.places import ROOT

ENDING_SECONDS = 30


class Job(msgspec.Struct):
    """`target` None where the process itself generates."""

    round: Round
    target: Target | None = None


class Answer(msgspec.Struct):
    """`error` says why there is no result."""

    result: RoundResult | None = None
    error: str | None = None


class RoundRunner:
    """Our end of such a process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait for the first line. Raises `LoadError` if it ends before."""
        self._read()

    def run(self, round_: Round, target: Target | None = None) -> RoundResult:
        """Run one round. Raises `LoadError` if a request is not answered in full."""
        stream: IO[bytes] | None = self._process.stdin
        assert stream is not None
        stream.write(msgspec.json.encode(Job(round=round_, target=target)) + b"\n")
        stream.flush()
        answer = msgspec.json.decode(self._read(), type=Answer)
        if answer.result is None:
            raise LoadError(answer.error or "no result")
        return answer.result

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadError(f"{self._process.args!r} ended with {self._process.wait()}")
        return line


@contextmanager
def round_runner(
    command: list[str], *, environ: Mapping[str, str] | None = None, log: Any = None
) -> Iterator[RoundRunner]:
    """Run `command`, which calls `answer_rounds`, until the block ends."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        process_group=0,
    )
    try:
        runner = RoundRunner(process)
        runner.wait_ready()
        yield runner
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def load_generator() -> Iterator[RoundRunner]:
    """Run the load generator until the block ends."""
    with round_runner([sys.executable, "-m", "tests.benchmarks.load"]) as runner:
        yield runner


def answer_rounds(run: Callable[[Job], RoundResult], output: IO[bytes]) -> None:
    """Be such a process: say that it is ready, then answer each line of the standard input."""

    def say(answer: Answer) -> None:
        line = memoryview(msgspec.json.encode(answer) + b"\n")
        while line:  # without a buffer, as under PYTHONUNBUFFERED, it takes what a pipe holds
            line = line[output.write(line) :]
        output.flush()

    say(Answer())
    for line in sys.stdin.buffer:
        try:
            say(Answer(result=run(msgspec.json.decode(line, type=Job))))
        except* (LoadError, OSError, TimeoutError) as group:
            say(Answer(error=f"{type(group.exceptions[0]).__name__}: {group.exceptions[0]}"))
