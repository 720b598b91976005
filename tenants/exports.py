"""How many files a tenant may have made at once, or an operator, and how long one may take: files
are read from the database as fast as somebody takes them, and cost all others for as long as that
lasts.

Counted in the cache, together for all processes; a place that its process lost comes back by
itself.
"""

import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, ParamSpec, TypeVar

import structlog
from asgiref.sync import sync_to_async
from django.core.cache import cache
from redis.exceptions import RedisError

from tenants.errors import TenantsError
from tenants.isolation.scoping import give_connection_back

_P = ParamSpec("_P")
_T = TypeVar("_T")

AT_ONCE: Final = 2
LONGEST_SECONDS: Final = 600
RETRY_SECONDS: Final = 10
# What stands in the last line of a file that took too long.
INCOMPLETE: Final = f"INCOMPLETE: this file took longer than {LONGEST_SECONDS} s to be read"
_INCOMPLETE_LINE: Final = f"{INCOMPLETE}\r\n".encode()

log = structlog.get_logger(__name__)


class TooManyExports(TenantsError):
    """As many files of the tenant, or the operator, as may be are being read already."""

    code = "too_many_exports"

    def __init__(self) -> None:
        super().__init__(
            f"{AT_ONCE} files are being read already; try again once one of them has ended."
        )


def take_place(reader_id: uuid.UUID, seconds: int) -> str | None:
    """Return the place that a file of the tenant or operator takes, which whoever makes it gives
    back; None where nothing can be counted. Raises `TooManyExports`."""
    try:
        for number in range(AT_ONCE):
            place = f"export:{reader_id}:{number}"
            if cache.add(place, 1, timeout=seconds):
                return place
    except RedisError as error:
        log.warning("export not counted", error=type(error).__name__)
        return None
    raise TooManyExports


def give_back(place: str | None) -> None:
    if place is not None:
        try:
            cache.delete(place)
        except RedisError as error:
            log.warning("export not counted", error=type(error).__name__)


@contextmanager
def one_export(reader_id: uuid.UUID) -> Iterator[None]:
    """Hold a place while a file is made as a whole. Raises `TooManyExports`."""
    place = take_place(reader_id, LONGEST_SECONDS)
    try:
        yield
    finally:
        give_back(place)


def bounded(
    reader_id: uuid.UUID,
    parts: AsyncGenerator[bytes],
    *,
    seconds: int | None = None,
    last_line: bytes = _INCOMPLETE_LINE,
) -> "BoundedFile":
    """Return the parts of a file, which holds its place until the last was taken or its reader has
    left; a reader who takes longer than so many seconds, `LONGEST_SECONDS` unless told, gets a
    last line that says so. Raises `TooManyExports` at once."""
    seconds = LONGEST_SECONDS if seconds is None else seconds
    return BoundedFile(take_place(reader_id, seconds), parts, seconds, last_line)


async def read_part(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what `work` reads of the database for one part of a file. The connection is given back
    before that is sent, which takes as long as its reader likes."""

    def read() -> _T:
        try:
            return work(*args, **kwargs)
        finally:
            give_connection_back()

    return await sync_to_async(read)()


class BoundedFile:
    """The content of a streaming answer, which Django closes."""

    def __init__(
        self, place: str | None, parts: AsyncGenerator[bytes], seconds: int, last_line: bytes
    ) -> None:
        self._place = place
        self._parts = parts
        self._seconds = seconds
        self._last_line = last_line

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        until = time.monotonic() + self._seconds
        try:
            async with aclosing(self._parts) as parts:
                async for part in parts:
                    yield part
                    if time.monotonic() > until:
                        yield self._last_line
                        return
        finally:
            self.close()

    def close(self) -> None:
        place, self._place = self._place, None
        give_back(place)
