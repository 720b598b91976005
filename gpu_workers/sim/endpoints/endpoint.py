"""What the simulated engine needs from an API, and all that it knows of it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

Content = dict[str, Any]

# A prompt has one token for so many bytes of its text.
BYTES_PER_PROMPT_TOKEN: Final = 4


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class SharedFields(msgspec.Struct):
    """The fields of OpenAI's requests that mean the same in all APIs and that the simulation
    heeds."""

    model: str = ""
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int | None = None
    stop: str | list[str] | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> list[str]:
        """Return the strings that end the text."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in stops if stop]

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True, kw_only=True, slots=True)
class SimRequest:
    """A request as the simulation reads it. `prompts` are texts, `messages` counts what a chat
    template would add to, `max_tokens` is None where the client named no bound and the API has
    none of its own."""

    prompts: list[bytes]
    messages: int
    max_tokens: int | None
    fields: SharedFields


class SimEndpoint(ABC):
    """One API. To simulate another one is a class like this in a file of its own, and a line in
    `registry`."""

    id_prefix: ClassVar[str]
    object_name: ClassVar[str]
    chunk_object_name: ClassVar[str]

    @abstractmethod
    def parse(self, body: bytes) -> SimRequest:
        """Parse the JSON of a request. Raises `msgspec.ValidationError` if it is invalid."""

    @abstractmethod
    def chunk_content(self, text: str) -> Content:
        """Return what a streamed choice has besides index and finish reason."""

    @abstractmethod
    def answer_content(self, text: str) -> Content:
        """Return what a choice of a whole answer has besides index and finish reason."""

    def opening_content(self) -> Content | None:
        """Return what the first event of a choice has before any token; None without one."""
        return None
