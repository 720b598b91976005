"""What is found of an upload, what it may take, and what passes between us and the jail."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from gpu_workers.protocol.adapters import AdapterBase

MIB: Final = 1024 * 1024


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload may be and its validation may take. `archive_bytes` bounds the upload,
    `adapter_bytes` its tensors, `max_rank` the rank where the base's own bound is no less."""

    archive_bytes: int = 256 * MIB
    adapter_bytes: int = 256 * MIB
    max_rank: int = 256
    config_bytes: int = MIB // 4
    header_bytes: int = 4 * MIB
    members: int = 64
    memory_bytes: int = 512 * MIB
    cpu_seconds: int = 8
    wall_seconds: float = 30.0


def written_bytes(bounds: Bounds) -> int:
    """Return the most bytes of a file that a validation writes: the tensors and their header, a
    tar's own blocks and other files beside them."""
    return bounds.adapter_bytes + 4 * bounds.header_bytes + bounds.config_bytes


class Guard(StrEnum):
    """What may hold a validator; the kernel decides which do."""

    LIMITS = "limits"  # memory, CPU, bytes written, descriptors, processes
    NO_NEW_PRIVILEGES = "no_new_privileges"
    OWN_USER = "own_user"  # nobody's, where the service runs as root
    NAMESPACES = "namespaces"  # user, network, mounts, IPC, host name: none that anybody else has
    EMPTY_ROOT = "empty_root"  # an empty, read-only file system
    LANDLOCK = "landlock"  # no path, no TCP, no signal to others
    SYSTEM_CALLS = "system_calls"  # seccomp: those that read, write and allocate


class RefusalCode(StrEnum):
    """Why an upload is refused; stable."""

    TOO_LARGE = "adapter_too_large"
    TOO_MUCH_WORK = "adapter_too_much_work"
    TOO_MUCH_MEMORY = "adapter_too_much_memory"
    ARCHIVE_KIND = "archive_kind"
    ARCHIVE_BROKEN = "archive_broken"
    ARCHIVE_ENCRYPTED = "archive_encrypted"
    ARCHIVE_STRAY_BYTES = "archive_stray_bytes"
    ARCHIVE_TOO_MANY_FILES = "archive_too_many_files"
    ARCHIVE_PATH = "archive_path"
    ARCHIVE_LINK = "archive_link"
    ARCHIVE_SPECIAL_FILE = "archive_special_file"
    ARCHIVE_DUPLICATE = "archive_duplicate"
    ARCHIVE_PICKLE = "archive_pickle"
    ARCHIVE_UNEXPECTED_FILE = "archive_unexpected_file"
    ARCHIVE_MISSING_FILE = "archive_missing_file"
    CONFIG_INVALID = "config_invalid"
    CONFIG_UNSUPPORTED = "config_unsupported"
    HEADER_INVALID = "header_invalid"
    TENSOR_DTYPE = "tensor_dtype"
    TENSOR_UNSUPPORTED = "tensor_unsupported"
    TENSOR_UNPAIRED = "tensor_unpaired"
    TENSOR_NOT_FINITE = "tensor_not_finite"
    TENSOR_TOO_LARGE = "tensor_too_large"
    WRONG_BASE = "wrong_base"
    RANK = "rank"
    RANK_MISMATCH = "rank_mismatch"


class FailureCode(StrEnum):
    """Why a validation gave no verdict; stable."""

    NOT_STARTED = "validator_not_started"
    DIED = "validator_died"
    TOO_LONG = "validator_too_long"
    BABBLED = "validator_babbled"
    NO_SPACE = "validator_no_space"
    BROKE = "validator_broke"


class WarningCode(StrEnum):
    """What is odd of an adapter that is accepted all the same."""

    NO_EFFECT = "no_effect"  # every product of A and B is zero


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """An upload that may be stored: what we wrote is at `path`, `size_bytes` with the digest
    `sha256`. `rank` is the largest of its modules, `parameters` the count of their numbers."""

    path: Path
    sha256: bytes
    size_bytes: int
    rank: int
    modules: int
    parameters: int
    warnings: tuple[WarningCode, ...]
    guards: frozenset[Guard]


@dataclass(frozen=True, kw_only=True)
class Refused:
    """An upload that is refused for what it is: asking again changes nothing. `where` names the
    file, key or tensor, or is empty."""

    code: RefusalCode
    message: str
    where: str
    guards: frozenset[Guard]


class ValidatorFailed(RuntimeError):
    """No verdict, and the upload is not to blame for it, as far as we know: try again, a few
    times."""

    def __init__(self, code: FailureCode, message: str, *, guards: frozenset[Guard]) -> None:
        super().__init__(message)
        self.code = code
        self.guards = guards


class UploadRefused(Exception):
    """Raised in the jail at what makes an upload unacceptable."""

    def __init__(self, code: RefusalCode, message: str, *, where: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator is given: descriptors of the upload (to read), of a scratch file and of what
    it is to write, and what to go by."""

    archive: int
    scratch: int
    output: int
    base: AdapterBase
    bounds: Bounds


class Jailed(msgspec.Struct, frozen=True, kw_only=True, tag="jailed"):
    """The first line of a validator: what holds it, before it has read one byte of the upload."""

    guards: list[Guard]


class Passed(msgspec.Struct, frozen=True, kw_only=True, tag="passed"):
    """The second line: what it wrote."""

    rank: int
    modules: int
    parameters: int
    warnings: list[WarningCode]


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected"):
    """The second line: what it refuses."""

    code: RefusalCode
    message: str
    where: str


class Broke(msgspec.Struct, frozen=True, kw_only=True, tag="broke"):
    """The second line: an error of the validator itself, by its type and place."""

    code: FailureCode
    reason: str


Finding = Passed | Rejected | Broke

_MOST_SHOWN: Final = 80


def shown(name: str) -> str:
    """Return a name from an upload as a sentence may have it: printable ASCII, 80 at most."""
    text = name.encode("ascii", "backslashreplace").decode()
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def shown_list(names: Sequence[str], most: int = 8) -> str:
    """Return some of the names for a sentence, and how many are left out."""
    listed = ", ".join(shown(name) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
