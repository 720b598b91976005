"""Something to look at."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

# Of one kind; how many more there are is said.
MOST: Final = 20


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Something to look at: what, since when (None if nobody knows), what to do, and the page that
    has it. `is_bad` is of what fails already."""

    what: str
    advice: str
    link: str
    since: datetime | None = None
    is_bad: bool = False

    @property
    def kind(self) -> str:
        return "bad" if self.is_bad else "warn"

    @property
    def label(self) -> str:
        return "problem" if self.is_bad else "warning"


def more(count: int, noun: str, link: str) -> Iterator[Concern]:
    if count > MOST:
        yield Concern(what=many(count - MOST, f"more {noun}"), advice="See them all.", link=link)


def many(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
