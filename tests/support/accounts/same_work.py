"""What an answer costs, in numbers that do not depend on the machine: statements of the database
and hashes of passwords. Where they are equal, the time tells nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.db import connection
from django.test.utils import CaptureQueriesContext


@dataclass(frozen=True, kw_only=True)
class Work:
    """`statements` are their first two words each."""

    statements: tuple[str, ...]
    hashes: int


def work_of(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Work:
    hashes = []
    encode = MD5PasswordHasher.encode

    def counted(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashes.append(salt)
        return encode(self, password, salt)

    with monkeypatch.context() as patch, CaptureQueriesContext(connection) as queries:
        patch.setattr(MD5PasswordHasher, "encode", counted)
        act()
    shapes = [_shape(query["sql"]) for query in queries.captured_queries]
    # Django undoes a savepoint in two statements.
    ends = [each for each, _ in groupby(shapes)]
    return Work(statements=tuple(ends), hashes=len(hashes))


def _shape(sql: str) -> str:
    """A savepoint, whatever its name, is kept or undone at the same cost."""
    first, second = sql.split()[:2]
    if first == "SAVEPOINT":
        return first
    return "end of savepoint" if first in {"RELEASE", "ROLLBACK"} else f"{first} {second}"
