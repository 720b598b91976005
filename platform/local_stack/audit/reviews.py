"""What people have looked at and accepted, each with a reason and the day on which they did."""

import tomllib
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("reviewed.toml")
# A decision is made again after so long: what was harmless may not have stayed so.
REVIEW_HOLDS: Final = timedelta(days=180)


class InvalidReview(Exception):
    """An entry without what makes it a decision."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """One decision: of a package, and of a vulnerability's id or of the licence that it states."""

    package: str
    what: str
    reason: str
    reviewed: date

    def is_overdue(self, today: date) -> bool:
        return today - self.reviewed > REVIEW_HOLDS


@dataclass(frozen=True, kw_only=True)
class Reviews:
    """All decisions: licences that any package may have, and those of single packages.
    `unaudited` are packages that no vulnerability service can know."""

    allowed_licences: frozenset[str]
    licences: tuple[Review, ...]
    vulnerabilities: tuple[Review, ...]
    unaudited: tuple[Review, ...]

    def overdue(self, today: date) -> list[Review]:
        every = (*self.licences, *self.vulnerabilities, *self.unaudited)
        return [review for review in every if review.is_overdue(today)]


def read(file: Path = FILE) -> Reviews:
    """Raises `InvalidReview` for an entry without package, reason or day."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return Reviews(
        allowed_licences=frozenset(data["licences"]["allowed"]),
        licences=_reviews(data["licences"].get("of", []), "licence"),
        vulnerabilities=_reviews(data.get("vulnerabilities", []), "id"),
        unaudited=_reviews(data.get("unaudited", []), "version"),
    )


def _reviews(entries: list[dict[str, Any]], what: str) -> tuple[Review, ...]:
    return tuple(_review(entry, what) for entry in entries)


def _review(entry: dict[str, Any], what: str) -> Review:
    words = [entry.get(name) for name in ("package", what, "reason")]
    reviewed = entry.get("reviewed")
    if not all(isinstance(word, str) and word for word in words) or type(reviewed) is not date:
        raise InvalidReview(f"Needs package, {what}, reason and a day (reviewed): {entry}")
    package, named, reason = (str(word) for word in words)
    return Review(package=package, what=named, reason=reason, reviewed=reviewed)
