"""The licences that packages state, held against those that were accepted."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_stack.audit.locks import Pin, normalised
from local_stack.audit.reviews import Reviews

# Classifiers stand beside one another (`;`), of which all are taken to hold.
_ALL = re.compile(r"; | AND ")
_ANY = " OR "


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What an installed package says of its licence, in one line."""

    package: str
    version: str
    licence: str


def installed(python: Path) -> dict[str, Stated]:
    """Return what the packages of an environment state, by normalised name. Raises
    `subprocess.CalledProcessError` if they cannot be listed."""
    command = [sys.executable, "-m", "piplicenses", f"--python={python}", "--from=mixed"]
    command += ["--with-system", "--format=json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Stated] = {}
    for entry in json.loads(listed.stdout):
        name = normalised(entry["Name"])
        # Some state the whole text, whose first line is its name.
        licence = entry["License"].strip().partition("\n")[0].strip()
        found[name] = Stated(package=name, version=entry["Version"], licence=licence)
    return found


def refused(stated: Iterable[Stated], reviews: Reviews) -> list[Stated]:
    """Return those whose licence nobody has accepted: neither in general nor for them."""
    accepted = {(normalised(each.package), each.what) for each in reviews.licences}
    return [
        each
        for each in stated
        if not is_allowed(each.licence, reviews.allowed_licences)
        and (each.package, each.licence) not in accepted
    ]


def is_allowed(licence: str, allowed: frozenset[str]) -> bool:
    """Return whether one alternative consists of allowed licences alone."""
    return any(
        all(part.strip("() ") in allowed or part.strip() in allowed for part in _ALL.split(way))
        for way in licence.split(_ANY)
    )


def unused(reviews: Reviews, stated: Sequence[Stated]) -> list[str]:
    """Return the packages whose accepted licence is not what they state any more."""
    states = {(each.package, each.licence) for each in stated}
    known = {each.package for each in stated}
    return [
        review.package
        for review in reviews.licences
        if normalised(review.package) in known
        and (normalised(review.package), review.what) not in states
    ]


def of_pins(pins: Iterable[Pin], installed: Mapping[str, Stated]) -> tuple[list[Stated], list[Pin]]:
    """Return what is stated of these pins, and the pins that are not installed here."""
    stated, absent = [], []
    for pin in pins:
        found = installed.get(pin.name)
        if found is not None and found.version == pin.version:
            stated.append(found)
        else:
            absent.append(pin)
    return stated, absent
