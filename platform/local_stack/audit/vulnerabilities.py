"""Known vulnerabilities of what is locked, by pip-audit.

pip-audit ends with success for a package that its service does not know, and so for all of them
where what answers is a package index without advisories. Here that is "not reachable", and a
package that alone is unknown has to be accepted by name.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local_stack.audit.locks import Pin, lock_file, normalised, pins
from local_stack.audit.reviews import Reviews

# Every service knows it; asked for first, so that one that is none is not asked for the others.
PROBE: Final = "django"
TIMEOUT_SECONDS: Final = 15


class Unreachable(Exception):
    """No vulnerability service answered; the text says what happened instead."""


@dataclass(frozen=True, kw_only=True)
class Vulnerability:
    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Of one lock file: what is known against it, and what the service knows nothing of."""

    known: tuple[Vulnerability, ...]
    unaudited: tuple[Pin, ...]


def probe(root: Path) -> None:
    """Ask for one package of the lock. Raises `Unreachable`."""
    pin = next(each for each in pins(root, "web") if each.name == PROBE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(f"{pin.name}=={pin.version}\n")
        audited = ask(file)
    if audited.unaudited:
        raise Unreachable(f"what answered knows no {pin.name} {pin.version}")


def audit(root: Path, lock: str) -> Audited:
    """Ask for all that a lock pins. Raises `Unreachable`."""
    return ask(lock_file(root, lock))


def ask(requirements: Path) -> Audited:
    """Ask pip-audit's service, which its own variables choose. Raises `Unreachable`."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements)]
    command += ["--no-deps", "--disable-pip", "--format", "json", "--aliases", "on"]
    command += ["--progress-spinner", "off", "--timeout", str(TIMEOUT_SECONDS)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        told = json.loads(ran.stdout)["dependencies"]
    except (ValueError, KeyError):
        lines = ran.stderr.strip().splitlines() or ["pip-audit said nothing"]
        raise Unreachable(lines[-1][:300]) from None
    return read(told)


def read(dependencies: Sequence[dict[str, Any]]) -> Audited:
    """Read what pip-audit tells of each package."""
    known, unaudited = [], []
    for each in dependencies:
        name = normalised(each["name"])
        if "skip_reason" in each:
            version = each["skip_reason"].rpartition("(")[2].rstrip(")")
            unaudited.append(Pin(name=name, version=version))
        for vulnerability in each.get("vulns", []):
            known.append(
                Vulnerability(
                    package=name,
                    version=each["version"],
                    id=vulnerability["id"],
                    aliases=tuple(vulnerability.get("aliases", ())),
                    fixed_in=tuple(vulnerability.get("fix_versions", ())),
                )
            )
    return Audited(known=tuple(known), unaudited=tuple(unaudited))


def not_accepted(audited: Audited, reviews: Reviews) -> list[str]:
    """Return a sentence for each vulnerability and unknown package that nobody has accepted."""
    accepted = {(normalised(each.package), each.what) for each in reviews.vulnerabilities}
    unaudited = {(normalised(each.package), each.what) for each in reviews.unaudited}
    problems = [
        f"{each.package} {each.version}: {each.id}"
        f" ({', '.join(each.aliases) or 'no other name'}),"
        f" fixed in {', '.join(each.fixed_in) or 'no version yet'}"
        for each in audited.known
        if not any((each.package, name) in accepted for name in (each.id, *each.aliases))
    ]
    problems += [
        f"{each.name} {each.version}: the vulnerability service does not know it"
        for each in audited.unaudited
        if (each.name, each.version) not in unaudited
    ]
    return problems
