"""What passes between a worker and the process that tries structures for it."""

import struct
from enum import StrEnum
from typing import BinaryIO, Final

import msgspec

# So many tokens have to be followed within so much CPU, or all there are if it ends before.
WALK_TOKENS: Final = 512
WALK_SECONDS: Final = 1.0

_LENGTH: Final = struct.Struct(">I")


class StructureKind(StrEnum):
    """As vLLM's engine tells them apart."""

    JSON = "json"
    REGEX = "regex"
    GRAMMAR = "grammar"
    LARK = "lark"
    STRUCTURAL_TAG = "structural_tag"


class Vocabulary(msgspec.Struct, frozen=True):
    """What the trials go by: xgrammar's description of the tokenizer, and whether JSON may have
    any white space. A trial may take so many seconds of CPU and bytes more memory."""

    tokenizer: str
    any_whitespace: bool
    cpu_seconds: int
    memory_bytes: int


class Structure(msgspec.Struct, frozen=True):
    """What is tried."""

    kind: StructureKind
    text: str


class Finding(StrEnum):
    """How a trial ended."""

    COMPILED = "compiled"
    INVALID = "invalid"  # xgrammar does not take it
    TOO_SLOW = "too_slow"  # to compile, or to walk a few tokens
    TOO_LARGE = "too_large"  # for the memory that it may take
    STARVED = "starved"  # others had the CPU: nothing is known of the structure


class Walk(msgspec.Struct, frozen=True):
    """What it took to follow a structure for some tokens: CPU seconds of the slowest; of the last
    quarter of them the median, and whether that is more than twice the median of the second. It
    `is_slow` if the time for all of them was over before the tokens were."""

    tokens: int
    slowest: float
    late: float
    grows: bool
    is_slow: bool = False

    def projected(self, tokens: int) -> float:
        """Return about how long the slowest of so many tokens takes. Ambiguous grammars cost more
        with every token, as its square at least."""
        if not self.grows or tokens <= self.tokens:
            return self.slowest
        return max(self.slowest, self.late * (tokens / self.tokens) ** 2)


class Verdict(msgspec.Struct, frozen=True):
    """`walks` are the ways that were tried through what has compiled."""

    finding: Finding
    walks: list[Walk] = []


def write(stream: BinaryIO, message: msgspec.Struct) -> None:
    stream.write(framed(message))
    stream.flush()


def framed(message: msgspec.Struct) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


def read(stream: BinaryIO) -> bytes:
    """Return the next message's bytes, b"" at the end."""
    head = stream.read(HEAD_BYTES)
    return stream.read(length_of(head)) if head else b""


def length_of(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    return int(length)


HEAD_BYTES: Final = _LENGTH.size
