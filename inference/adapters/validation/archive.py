"""Finds PEFT's two files in an upload, and refuses every archive that holds what it need not."""

import re
from dataclasses import dataclass
from typing import Final

from inference.adapters.validation.member import Member
from inference.adapters.validation.span import Span, inflate
from inference.adapters.validation.tar_archive import MAGIC as TAR_MAGIC
from inference.adapters.validation.tar_archive import MAGIC_AT as TAR_MAGIC_AT
from inference.adapters.validation.tar_archive import read_tar
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
# What PEFT, its users' tokenizers, trainers and machines leave beside the two files.
_IGNORED: Final = frozenset(
    {
        *("readme.md", "license", "license.txt", "license.md", ".gitattributes", ".gitignore"),
        *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt"),
        *("merges.txt", "special_tokens_map.json", "added_tokens.json", "generation_config.json"),
        *("chat_template.jinja", "chat_template.json", "trainer_state.json", "all_results.json"),
        *("train_results.json", "eval_results.json", ".ds_store", "thumbs.db"),
    }
)
_APPLES: Final = ("__MACOSX", "._")


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The two files, unpacked."""

    config: bytes
    tensors: Span


def open_upload(archive: Span, scratch: int, bounds: Bounds) -> Upload:
    """Return the two files of an archive; what had to be unpacked is in `scratch`. Raises
    `UploadRefused`."""
    found: dict[str, Member] = {}
    seen: set[str] = set()
    for member in _members(archive, scratch, bounds):
        parts = _plain_path(member.name)
        full_name = "/".join(parts).casefold()
        if full_name in seen and not member.is_folder:
            raise _duplicate(member.name)
        seen.add(full_name)
        name = _wanted(parts, is_folder=member.is_folder)
        if name is None:
            continue
        if name in found:
            raise _duplicate(member.name)
        found[name] = member
    for name, most in ((CONFIG, bounds.config_bytes), (TENSORS, _most_file(bounds))):
        if name not in found:
            raise UploadRefused(
                RefusalCode.ARCHIVE_MISSING_FILE,
                f"The archive has no {name}. Pack the folder that PEFT's save_pretrained wrote: "
                f"{CONFIG} and {TENSORS}.",
                where=name,
            )
        if found[name].size > most:
            raise UploadRefused(
                RefusalCode.TOO_LARGE,
                f"{name} has {found[name].size} bytes; at most {most} are taken. Train with a "
                "lower rank or for fewer modules.",
                where=name,
            )
    config = found[CONFIG].unpacked(scratch).read()
    return Upload(config=config, tensors=found[TENSORS].unpacked(scratch))


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
    if head[TAR_MAGIC_AT:] == TAR_MAGIC:
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


def _wanted(parts: tuple[str, ...], *, is_folder: bool) -> str | None:
    """Return which of the two files this is, None where it is ignored. Raises at any other. They
    may lie in one folder, which is how a folder is packed."""
    if not parts or (is_folder and len(parts) == 1):
        return None
    name = parts[-1]
    if parts[0].startswith(_APPLES) or name.startswith(_APPLES):
        return None
    if not is_folder and name.lower().endswith(_PICKLES):
        raise UploadRefused(
            RefusalCode.ARCHIVE_PICKLE,
            f"{shown(name)} is a format that runs code when it is read, so it was not. Save the "
            "adapter with safe_serialization=True, PEFT's default, and leave this file out.",
            where=shown(name),
        )
    if not is_folder and len(parts) <= 2:
        if name in (CONFIG, TENSORS):
            return name
        if name.lower() in _IGNORED:
            return None
    raise UploadRefused(
        RefusalCode.ARCHIVE_UNEXPECTED_FILE,
        f"{shown('/'.join(parts))} is none of an adapter's files. Pack {CONFIG} and {TENSORS} "
        "alone, side by side.",
        where=shown("/".join(parts)),
    )


def _duplicate(name: str) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_DUPLICATE,
        f"{shown(name)} is in the archive twice. Pack one adapter, each file once.",
        where=shown(name),
    )
