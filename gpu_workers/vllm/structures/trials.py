"""Has structures tried in a process of their own, one after another, each text once.

Tenants take turns (`turns`), so that nobody waits because another sends a thousand expensive ones.
The process is started with the engine and started anew when it has died.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections import OrderedDict
from typing import Final

import msgspec
import structlog

from gpu_workers.process_tree import PARENT_VARIABLE
from gpu_workers.vllm.structures import trial
from gpu_workers.vllm.structures.trial import Finding, Structure, Verdict, Vocabulary
from gpu_workers.vllm.structures.turns import Clock, Turns

_VERDICTS_KEPT: Final = 4096
# What a request waits for other trials of its tenant before it is refused: as long as an answer may
# take beyond its own work.
MOST_OWN_SECONDS: Final = 2.0
# The process ends a trial after six times its CPU seconds, or half a minute; what is longer hangs.
_WALL_TIMES_CPU: Final = 8
_STARTING_SECONDS: Final = 60.0
_MODULE: Final = "gpu_workers.vllm.structures.trial_process"

_log = structlog.get_logger(__name__)


class TrialsFailed(RuntimeError):
    """The process that tries structures cannot be had now."""


class StructureTrials:
    """The trials of one worker."""

    def __init__(
        self,
        *,
        module: str = _MODULE,
        most_own_seconds: float = MOST_OWN_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._module = module
        self._vocabulary: Vocabulary | None = None
        self._seconds = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        self._turns = Turns(clock, most_own_seconds=most_own_seconds)
        self._runner: asyncio.Task[None] | None = None

    async def start(self, vocabulary: Vocabulary) -> None:
        """Start the process; it is ready some seconds later."""
        self._vocabulary = vocabulary
        self._seconds = _STARTING_SECONDS + vocabulary.cpu_seconds * _WALL_TIMES_CPU
        await self._start_process()

    async def stop(self) -> None:
        if self._runner is not None:
            self._runner.cancel()
        await self._end_process()

    async def verdict(self, tenant_id: str, structure: Structure) -> Verdict:
        """Return what became of it, now or when it was first tried. Raises `TrialsFailed`, and
        `OwnTrialsAhead` where it has not been tried after so many seconds of others of its
        tenant."""
        digest = hashlib.sha256(f"{structure.kind}:{structure.text}".encode()).digest()
        if (known := self._verdicts.get(digest)) is not None:
            self._verdicts.move_to_end(digest)
            return known
        waiter = self._turns.join(tenant_id, digest, structure)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="structure-trials")
        try:
            return await waiter.verdict
        finally:
            self._turns.leave(waiter)

    async def _run(self) -> None:
        while trial := self._turns.begin():
            try:
                verdict = await self._ask(trial.structure)
            except (OSError, EOFError, msgspec.MsgspecError) as error:
                _log.error("structure_trial_failed", reason=repr(error))
                await self._end_process()
                self._turns.end(TrialsFailed("structures cannot be tried now"))
            else:
                self._turns.end(self._outcome(trial.digest, verdict))

    def _outcome(self, digest: bytes, verdict: Verdict) -> Verdict | TrialsFailed:
        """Keep what a trial found; one that found nothing is begun anew for whoever asks again."""
        if verdict.finding is Finding.STARVED:
            _log.warning("structure_trial_starved")
            return TrialsFailed("others had the CPU that the trial needed")
        self._verdicts[digest] = verdict
        if len(self._verdicts) > _VERDICTS_KEPT:
            self._verdicts.popitem(last=False)
        return verdict

    async def _ask(self, structure: Structure) -> Verdict:
        process = self._process or await self._start_process()
        requests, verdicts = process.stdin, process.stdout
        assert requests is not None  # noqa: S101 - both are pipes
        assert verdicts is not None  # noqa: S101
        async with asyncio.timeout(self._seconds):
            requests.write(trial.framed(structure))
            await requests.drain()
            length = trial.length_of(await verdicts.readexactly(trial.HEAD_BYTES))
            data = await verdicts.readexactly(length)
        return msgspec.msgpack.decode(data, type=Verdict)

    async def _start_process(self) -> asyncio.subprocess.Process:
        assert self._vocabulary is not None  # noqa: S101 - `start` comes first
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # xgrammar's own words, which may quote what it was given
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {PARENT_VARIABLE: str(os.getpid())},
        )
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.write(trial.framed(self._vocabulary))
        self._process = process
        return process

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
