"""`make audit`: look at all that is locked, write what was found to var/audit, say what is wrong.

Ends with 1 where something was found that nobody has accepted, and, with --strict, where known
vulnerabilities could not be looked for.
"""

import argparse
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from local_stack.audit import bill_of_materials, licences, reviews, vulnerabilities
from local_stack.audit.licences import Stated
from local_stack.audit.locks import LOCKS, Pin, pins
from local_stack.audit.reviews import Reviews
from local_stack.bootstrap import ROOT

CONTROL_PLANE = ".venv"
ENGINE = ".venv-engine"


def main(arguments: list[str]) -> int:
    """Audit the checkout; return the exit status."""
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail where nothing can be looked up")
    options = parser.parse_args(arguments)
    folder = ROOT / "var" / "audit"
    folder.mkdir(parents=True, exist_ok=True)
    decided = reviews.read()
    problems = _overdue(decided, datetime.now(UTC).date())
    problems += _licences_and_bills(folder, decided)
    problems += _vulnerabilities(decided, is_strict=options.strict)
    for problem in problems:
        _say(f"WRONG    {problem}")
    return int(bool(problems))


def _overdue(decided: Reviews, today: date) -> list[str]:
    return [
        f"review of {each.package} ({each.what}) is of {each.reviewed}: look again"
        for each in decided.overdue(today)
    ]


def _licences_and_bills(folder: Path, decided: Reviews) -> list[str]:
    libraries = bill_of_materials.vendored(ROOT)
    found = {name: _installed(name) for name in (CONTROL_PLANE, ENGINE)}
    stated: list[Stated] = []
    absent: set[Pin] = set()
    for lock in LOCKS:
        environment = found[ENGINE if lock.startswith("engine") else CONTROL_PLANE]
        here, elsewhere = licences.of_pins(pins(ROOT, lock), environment)
        stated += here
        absent.update(elsewhere)
        file = folder / f"{lock}.cdx.json"
        document = bill_of_materials.bill(ROOT, lock, environment, libraries)
        file.write_text(json.dumps(document, indent=1))
        _say(f"BILL     {file.relative_to(ROOT)}: {len(document['components'])} components")
    stated += [
        Stated(package=each.package, version=each.version, licence=each.licence)
        for each in libraries
    ]
    listed = sorted({(each.package, each.version, each.licence) for each in stated})
    lines = "".join("\t".join(each) + "\n" for each in listed)
    (folder / "licences.tsv").write_text(lines)
    absent -= {Pin(name=package, version=version) for package, version, _ in listed}
    unknown = sorted(f"{pin.name} {pin.version}" for pin in absent)
    _say(f"LICENCES var/audit/licences.tsv: {len(listed)} packages")
    if unknown:
        _say(f"SKIPPED  licences of {len(unknown)} that are locked for other machines than this:")
        _say(f"         {', '.join(unknown)}")
    problems = {
        f"{each.package} {each.version}: the licence '{each.licence}' is not accepted"
        for each in licences.refused(stated, decided)
    }
    problems |= {
        f"{package}: reviewed.toml accepts a licence that it does not state"
        for package in licences.unused(decided, stated)
    }
    return sorted(problems)


def _installed(environment: str) -> dict[str, Stated]:
    python = ROOT / environment / "bin" / "python"
    return licences.installed(python) if python.exists() else {}


def _vulnerabilities(decided: Reviews, *, is_strict: bool) -> list[str]:
    problems: list[str] = []
    try:
        vulnerabilities.probe(ROOT)
        for lock in LOCKS:
            audited = vulnerabilities.audit(ROOT, lock)
            problems += vulnerabilities.not_accepted(audited, decided)
            _say(f"LOOKED   {lock}: {len(audited.known)} known vulnerabilities")
    except vulnerabilities.Unreachable as error:
        _say("SKIPPED  known vulnerabilities were NOT looked for: no vulnerability service is")
        _say(f"         reachable from here: {error}")
        if is_strict:
            problems.append("known vulnerabilities could not be looked for")
    return sorted(set(problems))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
