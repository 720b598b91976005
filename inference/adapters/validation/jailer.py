"""Starts a program that shuts itself in, and takes no more from it than it may give.

The program gets no environment, no descriptor but those that are named, and no terminal; its
standard error goes nowhere, as what it would say could be the upload's.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

_MOST_ANSWER_BYTES: Final = 64 * 1024
# numpy's linear algebra would start a thread for each CPU, and none is used.
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Ending(StrEnum):
    """How a program ended."""

    EXITED = "exited"  # by itself or by a signal, as its status says
    TOO_LONG = "too_long"
    BABBLED = "babbled"  # wrote more than an answer has


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a program wrote, and how it ended; `status` as `subprocess` has it."""

    ending: Ending
    status: int
    answer: bytes
    seconds: float


def run_program(
    program: Path, *, given: bytes, descriptors: Sequence[int], wall_seconds: float
) -> Outcome:
    """Run a Python program to its end, or end it: after `wall_seconds`, or where it writes more
    than 64 KiB. `given` is its standard input; it inherits `descriptors`, by their numbers. Raises
    OSError where it cannot be started."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(given)
        standard_input.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-X", "utf8", str(program)],
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(descriptors),
            env=_ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    with process:
        try:
            assert process.stdout is not None  # noqa: S101 - as it was asked for above
            ending, answer = _read_answer(process.stdout, until=started + wall_seconds)
            if ending is Ending.EXITED:
                process.wait(max(0.0, started + wall_seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            ending = Ending.TOO_LONG
        finally:
            process.kill()
    return Outcome(
        ending=ending,
        status=process.returncode,
        answer=answer,
        seconds=time.monotonic() - started,
    )


def _read_answer(stream: IO[bytes], *, until: float) -> tuple[Ending, bytes]:
    answer = bytearray()
    while True:
        readable, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not readable:
            return Ending.TOO_LONG, bytes(answer)
        piece = os.read(stream.fileno(), _MOST_ANSWER_BYTES)
        if not piece:
            return Ending.EXITED, bytes(answer)
        answer += piece
        if len(answer) > _MOST_ANSWER_BYTES:
            return Ending.BABBLED, bytes(answer)
