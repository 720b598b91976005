"""Validates an upload, in the jail or by what runs in it."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import pytest

from gpu_workers.protocol.adapters import AdapterBase
from inference.adapters.validation.child import find
from inference.adapters.validation.validator import validate
from inference.adapters.validation.verdicts import (
    Accepted,
    Bounds,
    Finding,
    Guard,
    Job,
    RefusalCode,
    Refused,
    Rejected,
)
from tests.support.adapter_uploads.upload import BASE, upload

MOST_SECONDS: Final = 10.0
# What every Linux has that runs the tests; containers may refuse the others.
ALWAYS: Final = {Guard.LIMITS, Guard.NO_NEW_PRIVILEGES, Guard.SYSTEM_CALLS}


def verdict_of(
    folder: Path, data: bytes, bounds: Bounds | None = None, base: AdapterBase = BASE
) -> Accepted | Refused:
    """Validate an upload; the folder `kept` below `folder` gets what is accepted."""
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    return validate(upload(folder, data), kept, base, bounds or Bounds())


def assert_refused(
    folder: Path, data: bytes, code: RefusalCode, bounds: Bounds | None = None
) -> Refused:
    """Refused for this reason, within ten seconds, within the jail, and nothing stays on disk."""
    started = time.monotonic()
    verdict = verdict_of(folder, data, bounds)
    seconds = time.monotonic() - started
    assert isinstance(verdict, Refused), verdict
    assert verdict.code == code, verdict
    assert verdict.guards >= ALWAYS
    assert seconds < MOST_SECONDS
    assert list((folder / "kept").iterdir()) == []
    return verdict


def find_here(folder: Path, data: bytes, bounds: Bounds | None = None) -> Finding:
    """What runs in the jail finds, here in this process: a process for each of so many takes long,
    and what it finds does not depend on the jail."""
    with (
        upload(folder, data).open("rb") as archive,
        TemporaryFile() as scratch,
        TemporaryFile() as output,
    ):
        job = Job(
            archive=archive.fileno(),
            scratch=scratch.fileno(),
            output=output.fileno(),
            base=BASE,
            bounds=bounds or Bounds(),
        )
        return find(job)


def assert_rejected(
    folder: Path, data: bytes, code: RefusalCode, bounds: Bounds | None = None
) -> Rejected:
    """Refused for this reason by what runs in the jail, here in this process."""
    finding = find_here(folder, data, bounds)
    assert isinstance(finding, Rejected), finding
    assert finding.code == code, finding
    return finding


AssertRefused = Callable[[Path, bytes, RefusalCode], Refused | Rejected]
here_and_in_the_jail = pytest.mark.parametrize(
    "is_refused",
    [assert_rejected, pytest.param(assert_refused, marks=pytest.mark.rare)],
    ids=["here", "in the jail"],
)
