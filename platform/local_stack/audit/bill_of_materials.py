"""A bill of materials in CycloneDX's JSON for each lock file, with the vendored JavaScript."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local_stack.audit.licences import Stated
from local_stack.audit.locks import lock_file, normalised

VENDORED: Final = Path("platform/control_plane/static/dashboard/vendor")
SPECIFICATION: Final = "1.6"
_README = re.compile(
    r"^\S+ (?P<version>\d[\w.]*), .*?npm package `(?P<package>[^`]+)`.*?"
    r"Licence: (?P<licence>.+?), see LICENSE",
    re.DOTALL,
)


class UnknownOrigin(Exception):
    """A vendored folder whose README does not say what lies in it."""


@dataclass(frozen=True, kw_only=True)
class Vendored:
    """A JavaScript library in the tree. `digests` are SHA-256, by file name."""

    package: str
    version: str
    licence: str
    digests: Mapping[str, str]


def vendored(root: Path) -> list[Vendored]:
    """Return what lies in the folder of vendored libraries. Raises `UnknownOrigin`."""
    return [_vendored(folder) for folder in sorted((root / VENDORED).iterdir()) if folder.is_dir()]


def _vendored(folder: Path) -> Vendored:
    readme = folder / "README.md"
    told = _README.search(readme.read_text(encoding="utf-8")) if readme.is_file() else None
    if told is None or not (folder / "LICENSE").is_file():
        raise UnknownOrigin(f"{folder}: README.md has to name package, version and licence.")
    files = [file for file in sorted(folder.iterdir()) if file.suffix in (".js", ".css")]
    return Vendored(
        package=told["package"],
        version=told["version"],
        licence=told["licence"],
        digests={file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
    )


def bill(
    root: Path, lock: str, stated: Mapping[str, Stated], libraries: Iterable[Vendored]
) -> dict[str, Any]:
    """Return the bill of one lock: every pin with its hashes and, where it is installed here, its
    licence; and the vendored libraries where the lock is the control plane's. Raises
    `subprocess.CalledProcessError` if the lock cannot be read."""
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements"]
    command += [str(lock_file(root, lock)), "--pyproject", str(root / "pyproject.toml")]
    command += ["--sv", SPECIFICATION, "--of", "JSON", "--output-reproducible"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(made.stdout)
    for component in document["components"]:
        package = stated.get(normalised(component["name"]))
        if package is not None and package.version == component.get("version"):
            component["licenses"] = [{"license": {"name": package.licence}}]
    if not lock.startswith("engine"):
        document["components"] += [_component(library) for library in libraries]
    return document


def _component(library: Vendored) -> dict[str, Any]:
    reference = f"pkg:npm/{library.package}@{library.version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": library.package,
        "version": library.version,
        "purl": reference,
        "licenses": [{"license": {"name": library.licence}}],
        "components": [
            {
                "type": "file",
                "bom-ref": f"{reference}#{name}",
                "name": name,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
            for name, digest in library.digests.items()
        ],
    }
