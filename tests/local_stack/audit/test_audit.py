"""What an audit accepts and what it does not, and that it never passes for want of an answer."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from local_stack.audit import __main__ as audit
from local_stack.audit import bill_of_materials, licences, locks, reviews, vulnerabilities
from local_stack.audit.licences import Stated
from local_stack.audit.locks import Pin
from local_stack.audit.reviews import InvalidReview, Review, Reviews

from tests.support.places import ROOT

DAY = date(2026, 11, 23)


def review(package: str, what: str) -> Review:
    return Review(package=package, what=what, reason="looked at", reviewed=DAY)


def decided(
    *, licence: str = "LGPL", vulnerability: str = "PYSEC-1", unaudited: str = "1+cpu"
) -> Reviews:
    return Reviews(
        allowed_licences=frozenset({"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"}),
        licences=(review("Their_Lib", licence),),
        vulnerabilities=(review("their-lib", vulnerability),),
        unaudited=(review("torch", unaudited),),
    )


# Locks and reviews --------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", locks.LOCKS)
def test_a_lock_is_read_whole(lock: str) -> None:
    text = locks.lock_file(ROOT, lock).read_text()
    found = locks.pins(ROOT, lock)
    assert len(found) == sum("==" in line and line[0].isalnum() for line in text.splitlines()) > 50


def test_every_lock_file_is_looked_at() -> None:
    assert {file.stem for file in (ROOT / "requirements").glob("*.txt")} == set(locks.LOCKS)


def test_what_was_decided_can_be_read() -> None:
    found = reviews.read()
    assert "MIT" in found.allowed_licences
    assert not any("GPL" in licence for licence in found.allowed_licences)


@pytest.mark.parametrize("missing", ["package", "id", "reason", "reviewed"])
def test_a_decision_has_a_reason_and_a_day(tmp_path: Path, missing: str) -> None:
    fields = {"package": '"a"', "id": '"b"', "reason": '"c"', "reviewed": "2026-11-23"}
    lines = [f"{name} = {text}" for name, text in fields.items() if name != missing]
    file = tmp_path / "reviewed.toml"
    entry = "\n".join(["[licences]", "allowed = []", "[[vulnerabilities]]", *lines])
    file.write_text(entry)
    with pytest.raises(InvalidReview):
        reviews.read(file)


def test_a_decision_is_made_again() -> None:
    last_day = DAY + reviews.REVIEW_HOLDS
    assert decided().overdue(last_day) == []
    assert len(decided().overdue(last_day + timedelta(days=1))) == 3


# Licences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("licence", "is_accepted"),
    [
        ("MIT", True),
        ("MIT AND Apache-2.0", True),
        ("MIT; Apache-2.0", True),
        ("GPL-3.0 OR MIT", True),
        ("(MIT AND GPL-3.0) OR (MIT AND Apache-2.0)", True),
        ("Apache-2.0 WITH LLVM-exception AND MIT", True),
        ("MIT AND GPL-3.0", False),
        ("MIT; GPL-3.0", False),
        ("GPL-3.0", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_a_licence_is_accepted_by_its_terms(licence: str, is_accepted: bool) -> None:
    stated = Stated(package="a", version="1", licence=licence)
    assert licences.refused([stated], decided()) == ([] if is_accepted else [stated])


def test_one_packages_licence_is_accepted_for_it_alone() -> None:
    theirs = Stated(package="their-lib", version="1", licence="LGPL")
    others = Stated(package="other", version="1", licence="LGPL")
    assert licences.refused([theirs, others], decided()) == [others]
    assert licences.unused(decided(), [theirs]) == []
    assert licences.unused(decided(licence="GPL"), [theirs]) == ["Their_Lib"]


def test_another_version_than_the_locked_is_not_taken_for_it() -> None:
    pins = [Pin(name="a", version="2"), Pin(name="b", version="1")]
    installed = {name: Stated(package=name, version="1", licence="MIT") for name in "ab"}
    assert licences.of_pins(pins, installed) == ([installed["b"]], [pins[0]])


# Vulnerabilities ----------------------------------------------------------------------------------

FOUND = {
    "name": "Their_Lib",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["1.1"]}],
}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found: torch (1+cpu)"}


def test_a_known_vulnerability_is_wrong_until_somebody_has_accepted_it() -> None:
    audited = vulnerabilities.read([FOUND, {"name": "fine", "version": "1", "vulns": []}])
    assert vulnerabilities.not_accepted(audited, decided()) == []
    assert vulnerabilities.not_accepted(audited, decided(vulnerability="CVE-1")) == []
    [problem] = vulnerabilities.not_accepted(audited, decided(vulnerability="PYSEC-2"))
    assert "their-lib 1.0: PYSEC-1 (CVE-1), fixed in 1.1" in problem


def test_what_the_service_does_not_know_is_no_pass() -> None:
    audited = vulnerabilities.read([UNKNOWN])
    assert vulnerabilities.not_accepted(audited, decided()) == []
    [problem] = vulnerabilities.not_accepted(audited, decided(unaudited="2+cpu"))
    assert "does not know it" in problem


def answering(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> None:
    """In the place of pip-audit."""
    package = folder / "pip_audit"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(folder))


NOTHING_KNOWN = """import json, pathlib, sys
lines = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text().split()
pins = [line.split("==") for line in lines if "==" in line]
skipped = [{"name": name, "skip_reason": f"not found ({version})"} for name, version in pins]
print(json.dumps({"dependencies": skipped}))
"""


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit('ServiceError: no route to host')",
        "import sys; print('{}'); sys.exit(1)",
        NOTHING_KNOWN,
    ],
    ids=["no answer", "no list", "an index without advisories"],
)
def test_no_service_is_told_and_is_no_pass(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: str,
) -> None:
    answering(monkeypatch, tmp_path, program)
    assert audit._vulnerabilities(decided(), is_strict=False) == []
    printed = capsys.readouterr().out
    assert printed.startswith("SKIPPED") and "NOT looked for" in printed
    assert "LOOKED" not in printed
    assert audit._vulnerabilities(decided(), is_strict=True) == [
        "known vulnerabilities could not be looked for"
    ]


def test_a_service_is_asked_for_every_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch, tmp_path, f"print('''{json.dumps({'dependencies': [FOUND]})}''')")
    [problem] = audit._vulnerabilities(decided(vulnerability="none"), is_strict=False)
    assert problem.startswith("their-lib 1.0: PYSEC-1")
    assert capsys.readouterr().out.count("LOOKED") == len(locks.LOCKS)


# The bill of materials ----------------------------------------------------------------------------


def test_every_vendored_library_says_what_it_is() -> None:
    found = {each.package: each for each in bill_of_materials.vendored(ROOT)}
    assert {"htmx.org", "dompurify", "marked", "uplot"} <= found.keys()
    for library in found.values():
        assert (
            library.version
            in (ROOT / bill_of_materials.VENDORED)
            .joinpath(library.package.partition(".")[0], "README.md")
            .read_text()
        )
        assert library.digests


def test_a_vendored_folder_of_nobody_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / bill_of_materials.VENDORED / "thing"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("A thing.")
    with pytest.raises(bill_of_materials.UnknownOrigin, match="thing"):
        bill_of_materials.vendored(tmp_path)


def test_the_bill_has_every_pin_and_library_and_is_valid() -> None:
    pins = locks.pins(ROOT, "web")
    stated = {"django": Stated(package="django", version="0", licence="other version")}
    stated[pins[0].name] = Stated(package=pins[0].name, version=pins[0].version, licence="MIT")
    libraries = bill_of_materials.vendored(ROOT)
    document = bill_of_materials.bill(ROOT, "web", stated, libraries)
    named = {locks.normalised(each["name"]) for each in document["components"]}
    assert {pin.name for pin in pins} <= named
    assert {locks.normalised(each.package) for each in libraries} <= named
    licensed = [each["name"] for each in document["components"] if "licenses" in each]
    assert locks.normalised(licensed[0]) == pins[0].name and "django" not in licensed
    text = json.dumps(document)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
