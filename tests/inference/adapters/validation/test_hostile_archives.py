"""Archives that are none, or more than one adapter's two files."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.adapters.validation.validator import validate
from inference.adapters.validation.verdicts import Bounds, RefusalCode, Refused
from tests.support.adapter_uploads.upload import BASE, files, tarred, zipped
from tests.support.adapter_uploads.verdict import assert_refused, verdict_of

MIB = 1024 * 1024
SMALL = Bounds(archive_bytes=128 * MIB, adapter_bytes=4 * MIB)


def with_file(name: str, data: bytes = b"x") -> bytes:
    return zipped({**files(), name: data})


def renamed(name: str) -> bytes:
    both = files()
    return zipped({name: both["adapter_config.json"], **both})


def zip_entry(name: str, *, mode: int = 0o100644, data: bytes = b"x") -> bytes:
    """A good zip with one more entry of this Unix mode."""
    buffer = io.BytesIO(zipped(files()))
    with zipfile.ZipFile(buffer, "a") as archive:
        entry = zipfile.ZipInfo(name)
        entry.create_system = 3
        entry.external_attr = mode << 16
        archive.writestr(entry, data)
    return buffer.getvalue()


def tar_entry(kind: bytes, name: str = "adapter_model.safetensors") -> bytes:
    """A tar whose tensors are no plain file."""
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.linkname = "/etc/passwd"
    return tarred({"adapter_config.json": files()["adapter_config.json"]}, entry)


def zip_bomb() -> bytes:
    return zipped({**files(), "adapter_model.safetensors": bytes(40 * MIB)})


def lying_zip_bomb() -> bytes:
    """The directory and the header tell a small size; the stream inflates to forty MiB."""
    honest = zip_bomb()
    real, told = struct.pack("<L", 40 * MIB), struct.pack("<L", 1024)
    assert honest.count(real) == 2
    return honest.replace(real, told)


def overlapping_zip() -> bytes:
    """Two entries of the directory that share one local part (a bomb without compression)."""
    data = zipped(files(), method=zipfile.ZIP_STORED)
    end = data.rindex(b"PK\x05\x06")
    directory_at = struct.unpack_from("<L", data, end + 16)[0]
    directory = data[directory_at:end]
    second = directory.index(b"PK\x01\x02", 4)
    doubled = directory[:second] + directory[:second] + directory[second:]
    ending = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 3, 3, len(doubled), directory_at, 0)
    return data[:directory_at] + doubled + ending


def two_stories() -> bytes:
    """A zip whose header names another file than its directory."""
    return zipped(files()).replace(b"adapter_config.json", b"adapter_c0nfig.json", 1)


def gap_in_zip() -> bytes:
    """A zip with bytes between the last file and the directory."""
    data = zipped(files())
    end = data.rindex(b"PK\x05\x06")
    at = struct.unpack_from("<L", data, end + 16)[0]
    return data[:at] + b"MZ\x90" + data[at : end + 16] + struct.pack("<LH", at + 3, 0)


def encrypted_zip() -> bytes:
    data = bytearray(zipped(files()))
    for signature, flags_at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags_at] |= 1
    return bytes(data)


def zip64() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files().items():
            with archive.open(name, "w", force_zip64=True) as entry:
                entry.write(content)
    return buffer.getvalue()


def million_names() -> bytes:
    """A zip of a million empty files, by hand: zipfile takes minutes for it."""
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 7, 0)
    entry = struct.Struct("<4s6H3L5H2L")
    locals_, directory = [], []
    for number in range(1_000_000):
        name = b"%07d" % number
        directory.append(
            entry.pack(
                *(b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0),
                number * (len(local) + 7),
            )
            + name
        )
        locals_.append(local + name)
    front, middle = b"".join(locals_), b"".join(directory)
    ending = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(middle), len(front), 0
    )
    return front + middle + ending


def thousands_in_tar() -> bytes:
    return tarred({f"{number:07d}": b"" for number in range(5_000)})


def sparse_tar() -> bytes:
    """A file of a terabyte, by GNU's sparse records in a pax header."""
    entry = tarfile.TarInfo("adapter_model.safetensors")
    entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(2**40)}
    return tarred({"adapter_config.json": files()["adapter_config.json"]}, entry)


def negative_size_tar() -> bytes:
    """A header whose size is below zero, in base 256, at which readers have looped for ever."""
    data = bytearray(tarred(files(), dialect=tarfile.USTAR_FORMAT))
    data[124:136] = b"\xff" * 12
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\x00 " % sum(data[:512])
    return bytes(data)


def sized_by_pax() -> bytes:
    entry = tarfile.TarInfo("adapter_model.safetensors")
    entry.pax_headers = {"size": "1"}
    return tarred({"adapter_config.json": files()["adapter_config.json"]}, entry)


def wrong_checksum() -> bytes:
    data = bytearray(tarred(files(), dialect=tarfile.USTAR_FORMAT))
    data[0] ^= 1
    return bytes(data)


def stored_with_wrong_crc() -> bytes:
    data = zipped(files(), method=zipfile.ZIP_STORED)
    return data.replace(b'"peft_type": "LORA"', b'"peft_type": "LORa"')


def damaged_stream() -> bytes:
    data = bytearray(zipped(files()))
    data[len(data) // 2] ^= 0xFF
    return bytes(data)


class _Runs:
    """What makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, ("unpickled",)


PICKLE = pickle.dumps(_Runs())

HOSTILE: dict[str, tuple[Callable[[], bytes], RefusalCode]] = {
    "nothing at all": (lambda: b"", RefusalCode.ARCHIVE_KIND),
    "random bytes": (lambda: bytes(range(256)) * 64, RefusalCode.ARCHIVE_KIND),
    "a bare pickle": (lambda: PICKLE, RefusalCode.ARCHIVE_KIND),
    "a program": (lambda: b"\x7fELF" + bytes(4096), RefusalCode.ARCHIVE_KIND),
    "the tensors without an archive": (
        lambda: files()["adapter_model.safetensors"],
        RefusalCode.ARCHIVE_KIND,
    ),
    "a gzip of no tar": (lambda: gzip.compress(b"x" * 2048), RefusalCode.ARCHIVE_BROKEN),
    "an empty zip": (lambda: zipped({}), RefusalCode.ARCHIVE_MISSING_FILE),
    "an empty tar": (lambda: tarred({}), RefusalCode.ARCHIVE_KIND),
    "a cut zip": (lambda: zipped(files())[:-200], RefusalCode.ARCHIVE_BROKEN),
    "half a zip": (
        lambda: zipped(files())[: len(zipped(files())) // 2],
        RefusalCode.ARCHIVE_BROKEN,
    ),
    "bytes behind a zip": (lambda: zipped(files()) + b"more", RefusalCode.ARCHIVE_STRAY_BYTES),
    "a cut tar": (lambda: tarred(files())[:2048], RefusalCode.ARCHIVE_BROKEN),
    "a cut gzip": (lambda: tarred(files(), mode="w:gz")[:-64], RefusalCode.ARCHIVE_BROKEN),
    "a gzip with a tail": (
        lambda: tarred(files(), mode="w:gz") + b"tail",
        RefusalCode.ARCHIVE_BROKEN,
    ),
    "a pickle beside the tensors": (
        lambda: with_file("adapter_model.bin", PICKLE),
        RefusalCode.ARCHIVE_PICKLE,
    ),
    "a pickle in a folder": (
        lambda: with_file("checkpoint/optimizer.pt", PICKLE),
        RefusalCode.ARCHIVE_PICKLE,
    ),
    "a pickle in place of the tensors": (
        lambda: zipped({**files(), "adapter_model.safetensors": PICKLE}),
        RefusalCode.HEADER_INVALID,
    ),
    "code": (lambda: with_file("modeling.py", b"import os"), RefusalCode.ARCHIVE_UNEXPECTED_FILE),
    "an archive in the archive": (
        lambda: with_file("adapter.zip", zipped(files())),
        RefusalCode.ARCHIVE_UNEXPECTED_FILE,
    ),
    "two adapters": (
        lambda: zipped({f"{at}/{name}": data for at in "ab" for name, data in files().items()}),
        RefusalCode.ARCHIVE_DUPLICATE,
    ),
    "weights in another folder than the configuration": (
        lambda: zipped(
            {f"{at}/{name}": data for at, (name, data) in zip("ab", files().items(), strict=True)}
        ),
        RefusalCode.ARCHIVE_DUPLICATE,
    ),
    "no configuration": (
        lambda: zipped({"adapter_model.safetensors": files()["adapter_model.safetensors"]}),
        RefusalCode.ARCHIVE_MISSING_FILE,
    ),
    "a name that climbs out": (
        lambda: with_file("../../etc/cron.d/penstock"),
        RefusalCode.ARCHIVE_PATH,
    ),
    "a name that climbs out of a tar": (
        lambda: tarred({"a/../../x": b"x"}),
        RefusalCode.ARCHIVE_PATH,
    ),
    "an absolute name": (lambda: renamed("/adapter_config.json"), RefusalCode.ARCHIVE_PATH),
    "an absolute name in a tar": (lambda: tarred({"/etc/passwd": b"x"}), RefusalCode.ARCHIVE_PATH),
    "a name of Windows": (lambda: with_file("C:adapter_config.json"), RefusalCode.ARCHIVE_PATH),
    "a backslash": (lambda: with_file("..\\adapter_config.json"), RefusalCode.ARCHIVE_PATH),
    "a name that is not printable": (
        lambda: with_file("README\x1b[2J.md"),
        RefusalCode.ARCHIVE_PATH,
    ),
    "a name without end": (lambda: with_file("x" * 5000), RefusalCode.ARCHIVE_PATH),
    "a symbolic link in a zip": (
        lambda: zip_entry("README.md", mode=0o120777, data=b"/etc/passwd"),
        RefusalCode.ARCHIVE_LINK,
    ),
    "a device in a zip": (
        lambda: zip_entry("README.md", mode=0o020666),
        RefusalCode.ARCHIVE_SPECIAL_FILE,
    ),
    "a symbolic link": (lambda: tar_entry(tarfile.SYMTYPE), RefusalCode.ARCHIVE_LINK),
    "a hard link": (lambda: tar_entry(tarfile.LNKTYPE), RefusalCode.ARCHIVE_LINK),
    "a character device": (lambda: tar_entry(tarfile.CHRTYPE), RefusalCode.ARCHIVE_SPECIAL_FILE),
    "a block device": (lambda: tar_entry(tarfile.BLKTYPE), RefusalCode.ARCHIVE_SPECIAL_FILE),
    "a pipe": (lambda: tar_entry(tarfile.FIFOTYPE), RefusalCode.ARCHIVE_SPECIAL_FILE),
    "a sparse file": (sparse_tar, RefusalCode.ARCHIVE_SPECIAL_FILE),
    "a size in a pax record": (sized_by_pax, RefusalCode.ARCHIVE_SPECIAL_FILE),
    "a size below zero": (negative_size_tar, RefusalCode.ARCHIVE_BROKEN),
    "a wrong checksum": (wrong_checksum, RefusalCode.ARCHIVE_BROKEN),
    "a wrong checksum in a zip": (stored_with_wrong_crc, RefusalCode.ARCHIVE_BROKEN),
    "the same file twice": (
        lambda: zipped({**files(), "folder/adapter_config.json": b"{}"}),
        RefusalCode.ARCHIVE_DUPLICATE,
    ),
    "the same file twice in a tar": (
        lambda: tarred(files(), tarfile.TarInfo("adapter_config.json")),
        RefusalCode.ARCHIVE_DUPLICATE,
    ),
    "the same name but for its case": (
        lambda: zipped({**files(), "README.md": b"", "readme.MD": b""}),
        RefusalCode.ARCHIVE_DUPLICATE,
    ),
    "a password": (encrypted_zip, RefusalCode.ARCHIVE_ENCRYPTED),
    "another compression": (
        lambda: zipped(files(), method=zipfile.ZIP_LZMA),
        RefusalCode.ARCHIVE_KIND,
    ),
    "zip64": (zip64, RefusalCode.ARCHIVE_KIND),
    "a program before the zip": (
        lambda: b"#!/bin/sh\nexit\n" + zipped(files()),
        RefusalCode.ARCHIVE_KIND,
    ),
    "a zip before the zip": (
        lambda: zipped({"README.md": b""}) + zipped(files()),
        RefusalCode.ARCHIVE_STRAY_BYTES,
    ),
    "bytes behind the zip": (lambda: zipped(files()) + b"MZ", RefusalCode.ARCHIVE_STRAY_BYTES),
    "a zip's comment": (
        lambda: zipped(files(), comment=b"<script>"),
        RefusalCode.ARCHIVE_STRAY_BYTES,
    ),
    "bytes between the zip's files": (gap_in_zip, RefusalCode.ARCHIVE_STRAY_BYTES),
    "a zip behind the tar": (
        lambda: tarred(files()) + zipped(files()),
        RefusalCode.ARCHIVE_STRAY_BYTES,
    ),
    "overlapping files": (overlapping_zip, RefusalCode.ARCHIVE_STRAY_BYTES),
    "two stories of one file": (two_stories, RefusalCode.ARCHIVE_BROKEN),
    "a bomb": (zip_bomb, RefusalCode.TOO_LARGE),
    "a bomb that lies": (lying_zip_bomb, RefusalCode.TOO_LARGE),
    "a bomb of gzip": (
        lambda: gzip.compress(tarred({"adapter_model.safetensors": bytes(40 * MIB)}), 9),
        RefusalCode.TOO_LARGE,
    ),
    "a million names": (million_names, RefusalCode.ARCHIVE_TOO_MANY_FILES),
    "names without end in a tar": (thousands_in_tar, RefusalCode.ARCHIVE_TOO_MANY_FILES),
    "a configuration without end": (
        lambda: zipped({**files(), "adapter_config.json": b" " * MIB}),
        RefusalCode.TOO_LARGE,
    ),
    "damaged compression": (damaged_stream, RefusalCode.ARCHIVE_BROKEN),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(name: str, tmp_path: Path) -> None:
    build, code = HOSTILE[name]
    assert_refused(tmp_path, build(), code, SMALL)


def test_an_upload_beyond_its_bound_is_not_even_opened(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, bytes(2 * MIB), Bounds(archive_bytes=MIB))
    assert isinstance(verdict, Refused)
    assert verdict.code == RefusalCode.TOO_LARGE
    assert verdict.guards == frozenset()


def test_an_upload_that_is_a_link_or_a_folder_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "link", tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match=str(tmp_path)):
            validate(path, tmp_path, BASE, Bounds())
