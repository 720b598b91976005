"""Wheels of a few bytes and an index of them, so that installs need no network."""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel on disk, and the lines that pin it in a lock file."""

    file: Path
    pinned: str


def make_wheel(folder: Path, name: str, version: str, *, script: str | None = None) -> Wheel:
    """Make a wheel with the module `name`, and the executable `name` if there is a script."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script is not None:
        files[f"{name}-{version}.data/scripts/{name}"] = script
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16  # a file, executable
            archive.writestr(entry, text)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Wheel(file=file, pinned=f"{name}=={version} \\\n    --hash=sha256:{digest}\n")


def make_index(folder: Path, *wheels: Wheel) -> str:
    """Make a package index of the wheels; returns its address."""
    names = {wheel.file.name.partition("-")[0] for wheel in wheels}
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        links = [
            f'<a href="{wheel.file.as_uri()}">{wheel.file.name}</a>'
            for wheel in wheels
            if wheel.file.name.startswith(f"{name}-")
        ]
        (folder / name / "index.html").write_text("<br>".join(links))
    return folder.as_uri()
