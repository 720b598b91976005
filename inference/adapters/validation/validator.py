"""Validates an upload: refused, or written anew as the one file that is stored."""

import errno
import hashlib
import os
import signal
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gpu_workers.protocol.adapters import AdapterBase
from inference.adapters.validation.jailer import Ending, Outcome, run_program
from inference.adapters.validation.verdicts import (
    Accepted,
    Bounds,
    Broke,
    FailureCode,
    Finding,
    Guard,
    Jailed,
    Job,
    Passed,
    RefusalCode,
    Refused,
    Rejected,
    ValidatorFailed,
)

CHILD: Final = Path(__file__).with_name("child.py")

_log = structlog.get_logger(__name__)


def validate(
    archive: Path, folder: Path, base: AdapterBase, bounds: Bounds, *, program: Path = CHILD
) -> Accepted | Refused:
    """Look at an upload in a jail. Where it is accepted, `folder` has one file more, which is the
    caller's to keep or remove; else nothing of it is left.

    `program` is what is run, which stands for a child that fails in the tests. Raises
    `ValidatorFailed` where there is no verdict, and OSError where the archive cannot be opened."""
    with _opened(archive) as source:
        size = os.fstat(source).st_size
        if size > bounds.archive_bytes:
            return _too_large(size, bounds)
        return _validate(source, folder, base, bounds, program)


@contextmanager
def _opened(archive: Path) -> Iterator[int]:
    descriptor = os.open(archive, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "An upload is a file of its own.", str(archive))
        yield descriptor
    finally:
        os.close(descriptor)


def _too_large(size: int, bounds: Bounds) -> Refused:
    return Refused(
        code=RefusalCode.TOO_LARGE,
        message=f"The upload has {size} bytes; at most {bounds.archive_bytes} are taken. Train "
        "with a lower rank or for fewer modules.",
        where="",
        guards=frozenset(),
    )


def _validate(
    archive: int, folder: Path, base: AdapterBase, bounds: Bounds, program: Path
) -> Accepted | Refused:
    try:
        return _judge(archive, folder, base, bounds, program)
    except ValidatorFailed as failed:
        _log.warning(
            "adapter_validator_failed",
            code=failed.code.value,
            reason=str(failed),
            guards=_told(failed.guards),
        )
        raise


def _judge(
    archive: int, folder: Path, base: AdapterBase, bounds: Bounds, program: Path
) -> Accepted | Refused:
    output, part = _made(folder)
    try:
        outcome = _run(archive, output, folder, base, bounds, program)
        verdict = _verdict(outcome, bounds)
        guards = _guards(outcome)
        _log.info(
            "adapter_validated",
            verdict=verdict.code.value if isinstance(verdict, Rejected) else "accepted",
            seconds=round(outcome.seconds, 3),
            guards=_told(guards),
            without=_told(set(Guard) - guards),
        )
        if isinstance(verdict, Passed):
            return _keep(part, output, verdict, guards)
        return Refused(
            code=verdict.code, message=verdict.message, where=verdict.where, guards=guards
        )
    finally:
        os.close(output)
        part.unlink(missing_ok=True)


def _made(folder: Path) -> tuple[int, Path]:
    """Make the file that the child writes, open, with a name that nothing else has."""
    try:
        output, name = tempfile.mkstemp(dir=folder, suffix=".part")
    except OSError as error:
        raise _not_started(error) from error
    return output, Path(name)


def _run(
    archive: int, output: int, folder: Path, base: AdapterBase, bounds: Bounds, program: Path
) -> Outcome:
    try:
        # It has no name: whatever ends the child, or us, it leaves nothing.
        with tempfile.TemporaryFile(dir=folder) as scratch:
            job = Job(
                archive=archive, scratch=scratch.fileno(), output=output, base=base, bounds=bounds
            )
            return run_program(
                program,
                given=msgspec.msgpack.encode(job),
                descriptors=(archive, job.scratch, output),
                wall_seconds=bounds.wall_seconds,
            )
    except OSError as error:
        raise _not_started(error) from error


def _not_started(error: OSError) -> ValidatorFailed:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return ValidatorFailed(
        FailureCode.NO_SPACE if is_full else FailureCode.NOT_STARTED,
        f"The validator could not be started: {error}.",
        guards=frozenset(),
    )


def _verdict(outcome: Outcome, bounds: Bounds) -> Passed | Rejected:
    """Return what the child found, where it is one of the answers that it may give."""
    guards = _guards(outcome)
    if outcome.ending is Ending.TOO_LONG:
        raise ValidatorFailed(
            FailureCode.TOO_LONG,
            f"The validator had no verdict after {bounds.wall_seconds:g} s, of which its CPU time "
            f"was less than {bounds.cpu_seconds} s: the machine is too busy for it.",
            guards=guards,
        )
    if outcome.ending is Ending.BABBLED:
        raise _babbled(guards)
    if outcome.status == -signal.SIGXCPU:
        return Rejected(
            code=RefusalCode.TOO_MUCH_WORK,
            message=f"The upload takes more than {bounds.cpu_seconds} s of computing to look at. "
            "Pack PEFT's two files uncompressed, with tar or zip -0.",
            where="",
        )
    if outcome.status != 0:
        raise ValidatorFailed(
            FailureCode.DIED, f"The validator ended with {outcome.status}.", guards=guards
        )
    match _lines(outcome):
        case [_, Passed() | Rejected() as finding]:
            return finding
        case [_, Broke(code=code, reason=reason)]:
            raise ValidatorFailed(code, f"The validator broke: {reason}.", guards=guards)
        case _:
            raise _babbled(guards)


def _lines(outcome: Outcome) -> tuple[Jailed, Finding] | None:
    try:
        first, second = outcome.answer.splitlines()
        return (
            msgspec.json.decode(first, type=Jailed),
            msgspec.json.decode(second, type=Finding),
        )
    except ValueError:  # too many lines or too few; msgspec's errors are ValueErrors
        return None


def _guards(outcome: Outcome) -> frozenset[Guard]:
    """Return what held the child, as it said before it read the upload."""
    try:
        first = outcome.answer.split(b"\n", 1)[0]
        return frozenset(msgspec.json.decode(first, type=Jailed).guards)
    except msgspec.MsgspecError:
        return frozenset()


def _told(guards: Iterable[Guard]) -> list[str]:
    return sorted(guard.value for guard in guards)


def _babbled(guards: frozenset[Guard]) -> ValidatorFailed:
    return ValidatorFailed(
        FailureCode.BABBLED, "The validator said what no validator says.", guards=guards
    )


def _keep(part: Path, output: int, passed: Passed, guards: frozenset[Guard]) -> Accepted:
    """Name the file that the child wrote by the digest of what we read of it, not of its word."""
    with open(output, "rb", closefd=False) as file:
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()
        size = os.fstat(output).st_size
    if size == 0:
        raise _babbled(guards)
    path = part.rename(part.with_name(f"{digest.hex()}.safetensors"))
    return Accepted(
        path=path,
        sha256=digest,
        size_bytes=size,
        rank=passed.rank,
        modules=passed.modules,
        parameters=passed.parameters,
        warnings=tuple(passed.warnings),
        guards=guards,
    )
