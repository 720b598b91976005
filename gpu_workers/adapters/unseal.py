"""Opens a sealed adapter into the folder that an engine reads, as PEFT lays it out."""

import errno
import hashlib
import hmac
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from gpu_workers.protocol.adapters import AdapterSource
from gpu_workers.protocol.sealed import open_stream

CHUNK_BYTES: Final = 1024 * 1024
# Some 100 bytes for each tensor; the largest adapters have some ten thousand.
MOST_HEADER_BYTES: Final = 16 * 1024 * 1024
_LENGTH_BYTES: Final = 8
# A link, a socket, a file that may not be read: what nobody who writes the cache leaves there
_NOT_OURS: Final = {errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM}


class AdapterCorrupt(ValueError):
    """These are not the bytes that the source names."""


def unseal(sealed: Path, source: AdapterSource, folder: Path) -> None:
    """Write the adapter's tensors and configuration into an empty folder: the very bytes that were
    compared with the source's digest, whatever becomes of `sealed` meanwhile. Raises
    `AdapterCorrupt`, `FileNotFoundError` where there is none, and `OSError` where the disk refuses;
    what the folder holds then is nothing to use."""
    tensors = folder / WEIGHTS_FILE
    digest = hashlib.sha256()
    with _open_regular(sealed, source.size_bytes) as file, tensors.open("xb") as written:
        try:
            for plain in open_stream(_chunks(file), source.key):
                digest.update(plain)
                written.write(plain)
        except ValueError as error:  # the seal is broken, or this is no key
            raise AdapterCorrupt(str(error)) from error
    if not hmac.compare_digest(digest.digest(), source.sha256):
        raise AdapterCorrupt("Its digest is not the one that the source names.")
    (folder / CONFIG_FILE).write_text(json.dumps(_config_of(tensors)), encoding="utf-8")


def _open_regular(path: Path, size_bytes: int) -> BinaryIO:
    """Open a file of that size. Raises `AdapterCorrupt` if there is anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        raise AdapterCorrupt(f"It cannot be opened: {error.strerror}.") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size_bytes:
        os.close(descriptor)
        raise AdapterCorrupt(f"Expected a file of {size_bytes} bytes, got {found.st_size}.")
    return os.fdopen(descriptor, "rb")


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    try:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise AdapterCorrupt(f"It cannot be read: {error.strerror}.") from error


def _config_of(tensors: Path) -> dict[str, Any]:
    """Return PEFT's configuration from the metadata of a safetensors file."""
    with tensors.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > MOST_HEADER_BYTES:
            raise AdapterCorrupt(f"Its header has {length} bytes, beyond {MOST_HEADER_BYTES}.")
        header = file.read(length)
    try:
        config = json.loads(json.loads(header)["__metadata__"]["adapter_config"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AdapterCorrupt("Its metadata has no adapter_config.") from error
    if not isinstance(config, dict):
        raise AdapterCorrupt("Its adapter_config is no JSON object.")
    return config
