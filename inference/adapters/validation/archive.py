"""Finds PEFT's two files in an upload, and refuses every archive that holds what it need not."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inference.adapters.validation.member import Member
from inference.adapters.validation.span import Span, inflate
from inference.adapters.validation.tar_archive import MAGIC as TAR_MAGIC
from inference.adapters.validation.tar_archive import MAGIC_AT as TAR_MAGIC_AT
from inference.adapters.validation.tar_archive import is_old_tar, read_tar
from inference.adapters.validation.verdicts import (
    Bounds,
    RefusalCode,
    UploadRefused,
    shown,
)
from inference.adapters.validation.zip_archive import MAGIC as ZIP_MAGIC
from inference.adapters.validation.zip_archive import read_zip

CONFIG: Final = "adapter_config.json"
TENSORS: Final = "adapter_model.safetensors"

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # zlib's word for: with gzip's header and checksum
_MOST_NAME_LETTERS: Final = 255
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_PICKLES: Final = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz")
# What PEFT, hubs, trainers, tokenizers and machines leave beside the two files; none is read.
_IGNORED_SUFFIXES: Final = (
    *(".md", ".txt", ".rst", ".pdf", ".png", ".jpg", ".jpeg", ".svg", ".csv", ".tsv"),
    *(".json", ".jsonl", ".yaml", ".yml", ".toml", ".log", ".jinja", ".model"),
)
_IGNORED: Final = frozenset({"license", "licence", "notice", "copying", "authors", "thumbs.db"})
_APPLES: Final = "__MACOSX"
_MOST_NAMED: Final = 10


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The two files, unpacked."""

    config: bytes
    tensors: Span


def open_upload(archive: Span, scratch: int, bounds: Bounds) -> Upload:
    """Return the two files of an archive; what had to be unpacked is in `scratch`. Raises
    `UploadRefused`."""
    found: defaultdict[tuple[str, ...], dict[str, Member]] = defaultdict(dict)
    seen: set[str] = set()
    odd: list[str] = []
    for member in _members(archive, scratch, bounds):
        parts = _plain_path(member.name)
        full_name = "/".join(parts).casefold()
        if full_name in seen and not member.is_folder:
            raise _duplicate(member.name)
        seen.add(full_name)
        if not parts or member.is_folder or _is_beside(parts):
            continue
        *folder, name = parts
        if name in (CONFIG, TENSORS):
            found[tuple(folder)][name] = member
        else:
            odd.append("/".join(parts))
    if odd:
        raise _unexpected(odd)
    own = _side_by_side(found)
    for name, most in ((CONFIG, bounds.config_bytes), (TENSORS, _most_file(bounds))):
        if own[name].size > most:
            raise UploadRefused(
                RefusalCode.TOO_LARGE,
                f"{name} has {own[name].size} bytes; at most {most} are taken. Train with a "
                "lower rank or for fewer modules.",
                where=name,
            )
    config = own[CONFIG].unpacked(scratch).read()
    return Upload(config=config, tensors=own[TENSORS].unpacked(scratch))


def _side_by_side(found: Mapping[tuple[str, ...], dict[str, Member]]) -> dict[str, Member]:
    """Return the two files, which lie in one folder, whichever. Raises where one is missing, where
    they lie apart and where there are those of several adapters."""
    for name in (CONFIG, TENSORS):
        if not any(name in files for files in found.values()):
            raise UploadRefused(
                RefusalCode.ARCHIVE_MISSING_FILE,
                f"The archive has no {name}. Pack the folder that PEFT's save_pretrained wrote: "
                f"{CONFIG} and {TENSORS}.",
                where=name,
            )
    folders = sorted("/".join(folder) or "the top" for folder in found)
    if len(folders) > 1:
        told = ", ".join(shown(folder) for folder in folders[:_MOST_NAMED])
        raise UploadRefused(
            RefusalCode.ARCHIVE_DUPLICATE,
            f"Files of an adapter lie in several folders: {told}. Pack one adapter: its {CONFIG} "
            f"and {TENSORS} side by side.",
            where=shown(folders[0]),
        )
    (own,) = found.values()
    return own


def _most_file(bounds: Bounds) -> int:
    return bounds.adapter_bytes + bounds.header_bytes


def _members(archive: Span, scratch: int, bounds: Bounds) -> list[Member]:
    head = archive.part(0, min(archive.size, TAR_MAGIC_AT + len(TAR_MAGIC))).read()
    if head.startswith(ZIP_MAGIC):
        return read_zip(archive, bounds)
    if head.startswith(_GZIP_MAGIC):
        # A tar's own blocks and other files come on top of what is wanted.
        most = _most_file(bounds) + bounds.config_bytes + bounds.header_bytes
        return read_tar(inflate(archive, scratch, window_bits=_GZIP_WINDOW, most=most), bounds)
    if head[TAR_MAGIC_AT:] == TAR_MAGIC or is_old_tar(archive):
        return read_tar(archive, bounds)
    raise UploadRefused(
        RefusalCode.ARCHIVE_KIND,
        "The upload is neither a zip nor a tar (.tar, .tar.gz). Pack the folder that PEFT's "
        "save_pretrained wrote with one of them.",
    )


def _plain_path(name: str) -> tuple[str, ...]:
    """Return the parts of a name. Raises where it could mean a place outside the archive."""
    parts = tuple(part for part in name.removesuffix("/").split("/") if part != ".")
    if (
        len(name) > _MOST_NAME_LETTERS
        or not name.isprintable()
        or "\\" in name
        or _DRIVE.match(name)
        or any(part in ("", "..") for part in parts)
    ):
        raise UploadRefused(
            RefusalCode.ARCHIVE_PATH,
            f"{shown(name)!r} is no name of a file within the archive: it is absolute, leads out "
            f"of it, or is too long or unreadable. Name the files {CONFIG} and {TENSORS}.",
            where=shown(name),
        )
    return parts


def _is_beside(parts: tuple[str, ...]) -> bool:
    """Return whether a file is one of those that lie beside an adapter's and are not read."""
    name = parts[-1].lower()
    if name in (CONFIG, TENSORS):
        return any(part.startswith((".", _APPLES)) for part in parts[:-1])
    if name.endswith(_PICKLES):
        return False
    is_hidden = any(part.startswith((".", _APPLES)) for part in parts)
    return is_hidden or name in _IGNORED or name.endswith(_IGNORED_SUFFIXES)


def _unexpected(names: Sequence[str]) -> UploadRefused:
    """Return the refusal of all that is no part of an adapter, at once."""
    told = ", ".join(shown(name) for name in names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        told += f" and {len(names) - _MOST_NAMED} more"
    pickled = [name for name in names if name.lower().endswith(_PICKLES)]
    if pickled:
        return UploadRefused(
            RefusalCode.ARCHIVE_PICKLE,
            f"Leave out {told}: {shown(pickled[0])} is in a format that runs code when it is read, "
            "so it was not. Save an adapter with safe_serialization=True, PEFT's default.",
            where=shown(pickled[0]),
        )
    return UploadRefused(
        RefusalCode.ARCHIVE_UNEXPECTED_FILE,
        f"Leave out {told}: none of an adapter's files. Pack {CONFIG} and {TENSORS}, side by side.",
        where=shown(names[0]),
    )


def _duplicate(name: str) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_DUPLICATE,
        f"{shown(name)} is in the archive twice. Pack one adapter, each file once.",
        where=shown(name),
    )
