"""What the projects, keys and people of a report's rows are called."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tenants.models import ApiKey, Membership, Project

_Names = Mapping[uuid.UUID, str]


@dataclass(frozen=True, kw_only=True)
class Naming:
    """Puts names beside ids; those of people only `with_people`."""

    with_people: bool

    def add_to(self, rows: Sequence[dict[str, Any]]) -> None:
        """Give each row the names of what it has ids of: revoked keys have theirs, and what has
        none any more has None."""
        for column, (name_column, find) in self._named().items():
            if rows and column in rows[0]:
                names = find({row[column] for row in rows})
                for row in rows:
                    row[name_column] = names.get(row[column])

    def beside(self, columns: Iterable[str]) -> Iterator[str]:
        """Yield the columns of a file, each name behind its id."""
        named = self._named()
        for column in columns:
            yield column
            if column in named:
                yield named[column][0]

    def _named(self) -> Mapping[str, tuple[str, Callable[[set[uuid.UUID]], _Names]]]:
        return NAMED if self.with_people else {name: NAMED[name] for name in NAMED.keys() - _PEOPLE}


def _projects(ids: set[uuid.UUID]) -> _Names:
    return dict(Project.objects.filter(id__in=ids).values_list("id", "name"))


def _keys(ids: set[uuid.UUID]) -> _Names:
    return {key.id: key.title for key in ApiKey.objects.filter(id__in=ids)}


def _members(ids: set[uuid.UUID]) -> _Names:
    return dict(Membership.objects.filter(user__in=ids).values_list("user_id", "user__email"))


NAMED: Final[Mapping[str, tuple[str, Callable[[set[uuid.UUID]], _Names]]]] = {
    "project_id": ("project_name", _projects),
    "api_key_id": ("api_key_name", _keys),
    "created_by_id": ("created_by_email", _members),
}
_PEOPLE: Final = {"created_by_id"}
